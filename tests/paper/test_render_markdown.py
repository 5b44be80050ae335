import re

import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.render_markdown import render_markdown
from tests.paper.tables import build_table, everything, golden


def test_is_the_golden_file() -> None:
    text = render_markdown(everything())
    assert text == golden("table.md", text)


@pytest.mark.parametrize("smoke", [False, True])
def test_columns_align(smoke: bool) -> None:
    lines = render_markdown(everything(smoke=smoke)).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    bars = {tuple(m.start() for m in re.finditer(r"(?<!\\)\|", line)) for line in table}
    assert len(bars) == 1
    assert set(table[1]) <= set("|-: ")


def test_a_smoke_run_compares_nothing() -> None:
    text = render_markdown(everything(smoke=True))
    assert "SMOKE RUN" in text.splitlines()[0]
    assert "difference" not in text


@pytest.mark.parametrize("number", table_numbers())
def test_every_table_has_its_rows(number: int) -> None:
    layout = load_layout(number)
    shown = render_markdown(build_table(layout, [])).split("\n\n")[2:]
    for part, lines in zip(layout.parts, shown, strict=True):
        header, _, *rows = (line.split("|")[1:-1] for line in lines.splitlines())
        assert len(header) == len(part.headings) + 1 + len(part.columns)
        names = [row[len(part.headings)].strip() for row in rows]
        assert names.count("here") == len(part.rows)
        reported = names.count("RTX 3090" if layout.kind == "time" else "paper")
        assert reported == len(part.rows)
    assert ("Best in **bold**" in render_markdown(build_table(layout, []))) is False
