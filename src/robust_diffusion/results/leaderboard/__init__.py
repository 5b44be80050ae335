"""Leaderboard: models by worst case, from published records and from reports that were checked."""

from robust_diffusion.results.leaderboard.board import Board, Row, boards, published
from robust_diffusion.results.leaderboard.check import Checked, ReportCheck, Unchecked
from robust_diffusion.results.leaderboard.render import render_json, render_page

__all__ = [
    "Board",
    "Checked",
    "ReportCheck",
    "Row",
    "Unchecked",
    "boards",
    "published",
    "render_json",
    "render_page",
]
