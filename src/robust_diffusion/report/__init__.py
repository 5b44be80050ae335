"""Reports: views over records."""

from robust_diffusion.report.table import ResultTable, summarize

__all__ = ["ResultTable", "summarize"]
