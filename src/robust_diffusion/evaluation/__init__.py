"""Evaluation: one cell's protocol, the threat model, and the records that it leaves."""

from robust_diffusion.evaluation.cell import CellResult, evaluate_cell
from robust_diffusion.evaluation.evaluate_model import attack, evaluate
from robust_diffusion.evaluation.records import append_record, latest_by_cell, read_records
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.evaluation.threat import BlackBox, WhiteBox

__all__ = [
    "AttackReport",
    "BlackBox",
    "CellResult",
    "RobustnessReport",
    "WhiteBox",
    "append_record",
    "attack",
    "evaluate",
    "evaluate_cell",
    "latest_by_cell",
    "read_records",
]
