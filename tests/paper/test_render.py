"""Formats by their golden files; Markdown of all published tables by `publish.py --check`."""

import io
import re

import pandas as pd
import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.render import (
    escape,
    measured,
    render_csv,
    render_latex,
    render_markdown,
    to_frame,
)
from robust_diffusion.results.entry import Entry, Mark, Reported
from tests.paper.records import timed
from tests.paper.tables import build_table, everything, golden

ONE_STEP = {"solver": {"num_steps": 1}}


def test_markdown_is_the_golden_file() -> None:
    text = render_markdown(everything())
    assert text == golden("table.md", text)


def test_latex_is_the_golden_file() -> None:
    text = render_latex(everything())
    assert text == golden("table.tex", text)


def test_csv_is_the_golden_file() -> None:
    text = render_csv(everything())
    found, expected = (pd.read_csv(io.StringIO(of)) for of in (text, golden("table.csv", text)))
    pd.testing.assert_frame_equal(found, expected)


def test_a_smoke_run_compares_nothing_and_says_so() -> None:
    text = render_markdown(everything(smoke=True))
    assert "SMOKE RUN" in text.splitlines()[0]
    assert "difference" not in text
    assert set(to_frame(everything(smoke=True))["scale"]) == {"smoke"}


@pytest.mark.parametrize("number", table_numbers())
def test_latex_of_every_table_is_balanced_and_has_every_cell(number: int) -> None:
    table = build_table(load_layout(number), [])
    latex = render_latex(table)
    assert latex.isascii()
    plain = re.sub(r"\\[{}\\]", "", latex)
    assert plain.count("{") == plain.count("}")
    for (grid, _), of_grid in zip(table.grids, latex.split(r"\begin{tabular}")[1:], strict=True):
        body = of_grid.split("\\midrule\n", 1)[1].split("\n\\bottomrule")[0].splitlines()
        rows = [line for line in body if line != r"\midrule"]
        assert len(rows) == len(grid.rows)
        width = len(grid.headings) + len(grid.columns)
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {width}


def test_a_time_has_quartiles_and_a_factor_in_every_format() -> None:
    table = build_table(load_layout(7), [timed(0.0049, settings=ONE_STEP)])
    cell = r"\shortstack{4.90 (4.41--5.39) \\ {\fontsize{4}{5}\selectfont 9.8 ($\times$0.50)}}"
    assert cell in render_latex(table)
    assert render_latex(table).count(r"\begin{tabular}") == 2
    assert "4.90 (4.41–5.39)" in render_markdown(table)
    (line,) = to_frame(table).query("state == 'measured'").to_dict("records")
    assert (line["mean"], line["q1"], line["q3"]) == pytest.approx((4.9, 4.41, 5.39))
    assert (line["printed_mean"], line["factor"]) == (9.8, pytest.approx(0.5))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50 % & #1 $x_y {z}", r"50 \% \& \#1 \$x\_y \{z\}"),
        ("a\\b~c^d", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d"),
        ('say "5 to 10" or "so"', "say ``5 to 10'' or ``so''"),
        ("τ=2, ε≠0 ± 1", r"$\tau$=2, $\epsilon$?0 $\pm$ 1"),
        ("Heat⁺ <|>", "Heat$^+$ $<$$|$$>$"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("failed: seed=-1: too small", "failed: seed=-1: too small"),
        ("failed: /a/b/adj.npz: not found; put it there", "failed: adj.npz: not found"),
        (f"failed: {'x' * 60}", f"failed: {'x' * 21}…"),
    ],
)
def test_a_reason_is_short_enough_for_a_cell(text: str, shown: str) -> None:
    entry = Entry({}, "clean", Reported(), "failed", marks=[Mark("failed", text)])
    assert measured(entry, 2) == shown
