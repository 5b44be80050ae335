"""Formats by their golden files; Markdown of all published tables by `publish.py --check`."""

import io
from collections.abc import Callable

import pandas as pd
import pytest

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render import render_csv, render_latex, render_markdown, to_frame
from tests.paper.records import timed
from tests.paper.tables import everything, golden, table_of

ONE_STEP = {"solver": {"num_steps": 1}}


@pytest.mark.parametrize(
    ("render", "name"), [(render_markdown, "table.md"), (render_latex, "table.tex")]
)
def test_a_table_is_the_golden_file(render: Callable[[PaperTable], str], name: str) -> None:
    text = render(everything())
    assert text == golden(name, text)


def test_csv_is_the_golden_file() -> None:
    text = render_csv(everything())
    found, expected = (pd.read_csv(io.StringIO(of)) for of in (text, golden("table.csv", text)))
    pd.testing.assert_frame_equal(found, expected)


def test_a_time_has_quartiles_and_a_factor_alone_in_every_format() -> None:
    table = table_of(7, [timed(0.0049, settings=ONE_STEP)])
    latex = render_latex(table)
    assert all(of in latex for of in ("4.90 (4.41–5.39)", r"RTX 3090 & 9.8", "×0.50"))
    assert latex.count(r"\begin{tabular}") == 2
    assert "4.90 (4.41–5.39)" in render_markdown(table)
    (line,) = to_frame(table).query("state == 'measured'").to_dict("records")
    assert (line["mean"], line["q1"], line["q3"]) == pytest.approx((4.9, 4.41, 5.39))
    assert (line["printed_mean"], line["factor"]) == (9.8, pytest.approx(0.5))
    assert pd.isna([line[key] for key in ("difference", "deviations", "p", "rank")]).all()
    smoke = table_of(7, [timed(scale="smoke", settings=ONE_STEP)], scale="smoke")
    assert to_frame(smoke)["factor"].isna().all()
