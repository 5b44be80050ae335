"""Figures on pages read on white and on the site's dark page, and say what they show."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from robust_diffusion.paper.figures.draw import COLOURS, LOOKS, NEUTRAL, draw_series, render

FIGURES = Path(__file__).parents[3] / "docs" / "figures"
DRAWN = sorted(path for path in FIGURES.glob("*.svg") if path.stem != "sweep")
"""All figures but the picture of a terminal, which has a background of its own."""


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(colour: str, page: str) -> float:
    low, high = sorted([luminance(colour), luminance(page)])
    return (high + 0.05) / (low + 0.05)


def reads(colour: str) -> bool:
    return min(contrast(colour, "#ffffff"), contrast(colour, "#1e2129")) >= 3


def test_every_look_reads_on_both_pages() -> None:
    dark_or_pale = {colour for colour in COLOURS if not reads(colour)}
    dark_or_pale |= {name for name, look in LOOKS.items() if not reads(look.colour)}
    assert not dark_or_pale
    assert min(contrast(NEUTRAL, page) for page in ("#ffffff", "#1e2129")) > 4


def test_heat_plus_and_gcn_svd_differ_in_colour() -> None:
    assert LOOKS["heat_plus"].colour != LOOKS["gcn_svd"].colour


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_figure_is_transparent_and_its_texts_and_lines_read_on_both_pages(path: Path) -> None:
    svg = path.read_text(encoding="utf-8")
    assert not re.search(r"fill[:=]\s*\"?(#fff\b|#ffffff|white)", svg)
    assert re.search(r"text\s*\{ ?fill: #7f7f7f", svg) or "<text" not in re.sub(
        r"<text[^>]*fill=[^>]*>", "", svg
    )
    strokes = set(re.findall(r"stroke[:=]\s*\"?(#[0-9a-f]{3,6})\b", svg))
    texts = set(re.findall(r"<text[^>]*fill[:=]\s*\"?(#[0-9a-f]{3,6})\b", svg))
    assert not {colour for colour in strokes | texts if not reads(colour)}


@pytest.mark.parametrize("number", range(1, 5))
def test_a_chart_has_no_empty_panel(number: int) -> None:
    rows = [(f"panel {i}", "heat", x, 0.5, None) for i in range(number) for x in (0, 1)]
    points = pd.DataFrame(rows, columns=["panel", "series", "x", "y", "error"])
    figure = draw_series(points, "x", "y")
    grid = figure.axes[0].get_gridspec()
    assert grid is not None
    assert grid.nrows * grid.ncols == len(figure.axes) == number
    assert b"#000000" not in render(figure, "svg")
