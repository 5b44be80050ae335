"""Boards as one HTML page that loads nothing, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion import __version__
from robust_diffusion.results.leaderboard.board import Board
from robust_diffusion.results.numbers import signed

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,  # names come from records and reports
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(boards: Sequence[Board]) -> dict[str, str]:
    """The page and the same as data, accuracies in %, by the names of their files."""
    page = ENVIRONMENT.get_template("page.html.jinja")
    data = {"boards": [asdict(board) for board in boards], "version": __version__}
    return {
        "leaderboard.html": page.render(boards=boards, version=__version__, signed=signed),
        "leaderboard.json": json.dumps(data, indent=1, allow_nan=False) + "\n",
    }
