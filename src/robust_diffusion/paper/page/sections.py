"""Tables of the paper as sections of the page, with cells that can be linked to."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_html import figure_id, render_html

WITHOUT_LAYOUT = {
    4: ("data", "Statistics of the datasets. robust-diffusion table 4 shows them."),
}
"""Tables of the paper that are no grid of cells: label, and caption."""


@dataclass(frozen=True)
class Section:
    """A table on the page.

    Args:
        number: Number of the table.
        label: The table's in the paper's source.
        id: Anchor on the page.
        caption: The paper's.
        fragment: The table as HTML; empty where records cannot fill it.
        states: Number of entries in each state.
        outside: Number of entries outside the tolerance around the published value.
        configured: True for a table of budgets, whose numbers are configured, not measured.
    """

    number: int
    label: str
    id: str
    caption: str
    fragment: str = ""
    states: tuple[tuple[str, int], ...] = ()
    outside: int = 0
    configured: bool = False

    @property
    def measured(self) -> int:
        """Number of entries with a measured value."""
        return dict(self.states).get("measured", 0)

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(count for _, count in self.states)


def sections(tables: Sequence[PaperTable]) -> list[Section]:
    """A section for every table of the paper, in order."""
    found = {table.layout.number: _section(table) for table in tables}
    for number, (label, caption) in WITHOUT_LAYOUT.items():
        found.setdefault(number, Section(number, label, f"table-{number}", caption))
    return [found[number] for number in sorted(found)]


def cell_id(table: PaperTable, place: int) -> str:
    """Anchor of a table's entry, counted row by row from 0."""
    return f"{figure_id(table)}-cell-{place}"


def embed(table: PaperTable) -> str:
    """A table as HTML with anchors in its cells, marked deviations and room to scroll."""
    # Text from records is escaped in a fragment, so that its tags are the renderer's own.
    fragment = render_html(table)
    entries = [entry for _, _, entry in table]
    first, *cells = fragment.split('<td class="')
    linked = first
    for place, (entry, cell) in enumerate(zip(entries, cells, strict=True)):
        side = "above" if (entry.deviations or 0) > 0 else "below"
        kind = f"miss {side} " if entry.outside_tolerance else ""
        linked += f'<td id="{cell_id(table, place)}" class="{kind}{cell}'
    name = escape(f"Table {table.layout.number}, scrolls sideways")
    scroll = f'<div class="scroll" role="group" aria-label="{name}"><table>'
    page, *grids = linked.split("<table>")
    for part, grid in zip(table.parts, grids, strict=True):
        names = len(part.layout.headings)
        page += scroll + grid.replace('<th scope="col">', '<th scope="col" class="name">', names)
    return page.replace("</table>", "</table></div>")


def _section(table: PaperTable) -> Section:
    configured = table.layout.kind == "budgets"
    return Section(
        number=table.layout.number,
        label=table.layout.label,
        id=figure_id(table),
        caption=table.layout.caption,
        fragment=embed(table),
        states=tuple(table.header.states.items()),
        outside=0 if configured else sum(entry.outside_tolerance for _, _, entry in table),
        configured=configured,
    )
