"""Boards as one HTML page that loads nothing, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion import __version__
from robust_diffusion.results.leaderboard.board import Board
from robust_diffusion.results.numbers import signed

TEMPLATES = Path(__file__).with_name("templates")

ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,  # names come from records and reports
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render_page(boards: Sequence[Board]) -> str:
    """The page.

    Args:
        boards: In their order.
    """
    return ENVIRONMENT.get_template("page.html.jinja").render(
        boards=boards, version=__version__, signed=signed
    )


def render_json(boards: Sequence[Board]) -> str:
    """The same as data, accuracies in %."""
    listed = [asdict(board) for board in boards]
    return json.dumps({"boards": listed, "version": __version__}, indent=1, allow_nan=False) + "\n"
