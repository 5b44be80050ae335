"""Cells of an experiment: one protocol, the sweeps that run it, and what they show."""

from robust_diffusion.cells.cell import CellResult, evaluate_cell

__all__ = ["CellResult", "evaluate_cell"]
