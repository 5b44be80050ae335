"""W&B dashboards as code: their content, and its publication."""

from robust_diffusion.paper.dashboard.build import project_dashboard, table_dashboard
from robust_diffusion.paper.dashboard.spec import Dashboard

__all__ = ["Dashboard", "project_dashboard", "table_dashboard"]
