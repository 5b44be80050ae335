"""The report: one static page of tables, charts, claims and figures, made of records alone."""

from robust_diffusion.paper.page.build import render_page

__all__ = ["render_page"]
