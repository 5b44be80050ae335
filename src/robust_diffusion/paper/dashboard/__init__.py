"""W&B dashboards as code: what they show, and how they get there."""

from robust_diffusion.paper.dashboard.build import project_dashboard, table_dashboard
from robust_diffusion.paper.dashboard.spec import Dashboard

__all__ = ["Dashboard", "project_dashboard", "table_dashboard"]
