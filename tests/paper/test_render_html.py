from html.parser import HTMLParser

import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable, build_table
from robust_diffusion.paper.render_html import render_html
from tests.paper.records import finished
from tests.paper.tables import ODD, everything

VOID = {"br"}


class Parsed(HTMLParser):
    """The tags of a fragment; balanced, or it fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.rows: list[list[tuple[str, dict[str, str | None], str]]] = []
        self.seen: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            assert len(dict(attrs)) == len(attrs)
            self.rows[-1].append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            tag, attributes, text = self.rows[-1][-1]
            self.rows[-1][-1] = (tag, attributes, text + data)


def cells(table: PaperTable) -> list[tuple[dict[str, str | None], str]]:
    rows = Parsed(render_html(table)).rows
    return [(attributes, text) for row in rows for tag, attributes, text in row if tag == "td"]


@pytest.mark.parametrize("number", table_numbers())
def test_every_entry_is_one_cell_of_a_rectangular_table(number: int) -> None:
    layout = load_layout(number)
    parsed = Parsed(render_html(build_table(layout, [])))
    parts = layout.parts
    entries = sum(len(part.rows) * len(part.columns) for part in parts)
    assert len(cells(build_table(layout, []))) == entries
    widths = [len(part.headings) + len(part.columns) for part in parts for _ in (0, *part.rows)]
    hanging = 0
    for row, width in zip(parsed.rows, widths, strict=True):
        spans = [int(attributes.get("rowspan") or 1) for _, attributes, _ in row]
        assert len(row) + (hanging > 0) == width
        hanging = max(hanging - 1, max(spans) - 1)
    assert hanging == 0
    assert parsed.seen.count("table") == parsed.seen.count("caption") == len(parts)
    assert {"table", "caption", "thead", "tbody", "figcaption"} <= set(parsed.seen)


def test_numbers_are_attributes() -> None:
    for (row, column, entry), (attributes, _) in zip(
        everything(), cells(everything()), strict=True
    ):
        assert (attributes["data-row"], attributes["data-column"]) == (row.label, column.label)
        assert attributes["data-state"] == entry.state
        numbers = {
            "mean": entry.mean,
            "std": entry.std,
            "printed-mean": entry.printed.mean,
            "difference": entry.difference,
            "p-holm": entry.p_holm,
            "rank": entry.rank,
        }
        for key, value in numbers.items():
            found = attributes.get(f"data-{key}")
            if value is None:
                assert found is None
            else:
                assert float(found or "nan") == pytest.approx(value, rel=1e-11)
                # More than that the C library would decide, and the page differ by the machine.
                assert sum(map(str.isdigit, (found or "").lstrip("-0."))) <= 12
        values = (attributes.get("data-values") or "").split()
        assert [float(v) for v in values] == [run.value for run in entry.runs]


def test_details_can_be_hovered_over_and_reached_by_keyboard() -> None:
    attributes, text = cells(everything())[3]
    assert attributes["tabindex"] == "0"
    title = (attributes["title"] or "").splitlines()
    assert title[0] == "here: 77.00 ± 1.58"
    assert title[1] == "5 seeds: 0: 75.00, 1: 76.00, 2: 77.00, 3: 78.00, 4: 79.00"
    assert title[2] == "paper: 75.93 ± 1.46"
    assert title[3] == "difference: +1.07"
    assert title[4].startswith("p: 0.")
    assert text == "77.00 ± 1.5875.93 ± 1.46"


def test_ranks_are_more_than_a_colour() -> None:
    html = render_html(everything())
    assert '<strong class="ours">77.00 ± 1.58</strong>' in html
    assert '<em class="ours">76.00 ± 1.58</em>' in html
    classes = [attributes["class"] for attributes, _ in cells(everything())]
    assert classes[:4] == ["failed", "measured second", "measured", "measured best"]


def test_several_notes_of_an_entry_are_kept_apart() -> None:
    record = finished(0.7, 0.4, seed=0)
    record["warnings"] = {"speit": ["adds an edge", "weaker than chance"]}
    html = render_html(build_table(load_layout(3), [record]))
    assert "<sup>1, 2</sup>" in html


def test_whatever_an_error_says_stays_text() -> None:
    attributes, text = cells(everything())[0]
    assert f"failed: {ODD}" in (attributes["title"] or "")
    assert text.startswith('failed: loss <is> "not"')
    assert "<is>" not in render_html(everything())


def test_missing_data_are_no_number() -> None:
    states = {attributes["data-state"]: attributes for attributes, _ in cells(everything())}
    assert "data-mean" not in states["no data"]
    assert states["no data"]["class"] == "no-data"
    assert "data-mean" not in states["not run"]


def test_a_figure_says_whose_it_is() -> None:
    assert render_html(everything()).startswith('<figure class="paper-table" id="table-3" ')
    html = render_html(everything(smoke=True))
    assert html.startswith('<figure class="paper-table" id="table-3-smoke" data-label="flows"')
    assert 'data-scale="smoke"' in html
    assert "SMOKE RUN" in html
