from html.parser import HTMLParser

import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_html import render_html
from tests.paper.tables import ODD, build_table, everything, golden

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


def test_is_the_golden_file() -> None:
    html = render_html(everything())
    assert html == golden("table.html", html)


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
            "printed-mean": entry.reported.mean,
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


def test_foreign_text_stays_text() -> None:
    attributes, text = cells(everything())[0]
    assert f"failed: {ODD}" in (attributes["title"] or "")
    assert text.startswith('failed: loss <is> "not"')
    assert "<is>" not in render_html(everything())


def test_a_figure_says_whose_it_is() -> None:
    html = render_html(everything(smoke=True))
    assert html.startswith('<figure class="paper-table" id="table-3-smoke" data-label="flows"')
    assert 'data-scale="smoke"' in html
    assert "SMOKE RUN" in html
