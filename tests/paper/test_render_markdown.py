import re

import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable, build_table
from robust_diffusion.paper.render_markdown import render_markdown
from tests.paper.tables import ODD, everything


def grid(table: PaperTable) -> list[list[str]]:
    """The cells of the Markdown table, header first, rule left out."""
    lines = [line for line in render_markdown(table).splitlines() if line.startswith("|")]
    # A pipe inside a cell is escaped.
    rows = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [rows[0], *rows[2:]]


@pytest.mark.parametrize("smoke", [False, True])
def test_columns_align(smoke: bool) -> None:
    lines = render_markdown(everything(smoke=smoke)).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    bars = {tuple(m.start() for m in re.finditer(r"(?<!\\)\|", line)) for line in table}
    assert len(bars) == 1
    assert set(table[1]) <= set("|-: ")


def test_every_row_of_the_paper_is_ours_theirs_and_the_difference() -> None:
    header, *rows = grid(everything())
    assert header[:3] == ["Dataset", "Attack", ""]
    assert header[3:] == ["Heat", "GRAND/BLEND", "Mean Curvature", "Beltrami"]
    assert rows[0] == [
        *["Cora", "clean", "here"],
        *['failed: loss <is> "not"… [1]', "_76.00 ± 1.58_", "70.00 [2]"],
        "**77.00 ± 1.58**",
    ]
    assert rows[1][2:] == [
        "paper",
        *["78.86 ± 1.78", "74.89 ± 1.29", "76.01 ± 2.20", "75.93 ± 1.46"],
    ]
    assert rows[2][:4] == ["", "", "difference", "-"]
    assert re.fullmatch(r"\+1\.11 \(p (1|0\.\d+)\)", rows[2][4])
    assert rows[2][5] == "\N{MINUS SIGN}6.01"


def test_a_label_is_not_repeated_below_itself() -> None:
    rows = grid(everything())[1:]
    assert [row[0] for row in rows if row[0]] == ["Cora", "Citeseer", "PubMed"]
    assert [row[1] for row in rows if row[2] == "here"] == ["clean", "SPEIT", "TDGIA"] * 3


def test_missing_data_show_as_such() -> None:
    rows = grid(everything())[1:]
    pubmed = [row for row in rows if row[2] == "here"][-1]
    assert pubmed[-1].startswith("no data: x.npz: not found")
    assert pubmed[3] == "not run"


def test_notes_are_numbered_and_whole() -> None:
    text = render_markdown(everything())
    notes = dict(re.findall(r"^- \[(\d+)\] (.*)$", text, re.MULTILINE))
    assert notes["1"] == f"failed: {ODD}"
    used = set(re.findall(r"\[(\d+)\] +\|", text))
    assert used <= set(notes)
    assert "tdgia: weaker than chance: 60.00 % against 10.00 % (seed 0)" in notes.values()


def test_a_smoke_run_says_so_and_compares_nothing() -> None:
    table = everything(smoke=True)
    first = render_markdown(table).splitlines()[0]
    assert "SMOKE RUN" in first
    assert {row[2] for row in grid(table)[1:]} == {"here", "paper"}


@pytest.mark.parametrize("number", table_numbers())
def test_every_table_has_its_rows(number: int) -> None:
    layout = load_layout(number)
    shown = render_markdown(build_table(layout, [])).split("\n\n")[2:]
    for part, lines in zip(layout.parts, shown, strict=True):
        header, _, *rows = (line.split("|")[1:-1] for line in lines.splitlines())
        assert len(header) == len(part.headings) + 1 + len(part.columns)
        names = [row[len(part.headings)].strip() for row in rows]
        assert names.count("here") == len(part.rows)
        theirs = names.count("RTX 3090" if layout.kind == "time" else "paper")
        assert theirs == len(part.rows)
    assert ("Best in **bold**" in render_markdown(build_table(layout, []))) is False
