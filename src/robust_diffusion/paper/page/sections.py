"""Tables of the paper as sections of the page, with cells that can be linked to."""

from dataclasses import dataclass
from html import escape

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_html import figure_id, render_html


@dataclass(frozen=True)
class Section:
    """A table on the page."""

    name: str  # number, and what it is about
    label: str  # in the paper's source
    id: str  # anchor on the page
    caption: str
    fragment: str  # HTML
    states: tuple[tuple[str, int], ...]  # number of entries in each state
    outside: int  # number of entries outside the tolerance
    configured: bool  # a table of budgets: numbers are configured, not measured

    @property
    def filled(self) -> bool:
        """Some record, or the configuration, has something to say."""
        return any(state != "not run" for state, _ in self.states)

    @property
    def measured(self) -> int:
        """Number of entries with a measured value."""
        return dict(self.states).get("measured", 0)

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(count for _, count in self.states)


def section(table: PaperTable) -> Section:
    """The section of a table."""
    configured = table.layout.kind == "budgets"
    return Section(
        name=table.layout.name,
        label=table.layout.label,
        id=figure_id(table),
        caption=table.layout.caption,
        fragment=embed(table),
        states=tuple(table.states.items()),
        outside=0 if configured else sum(entry.outside_tolerance for _, _, entry in table),
        configured=configured,
    )


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
    name = escape(f"{table.layout.name}, scrolls sideways")
    scroll = f'<div class="scroll" role="group" aria-label="{name}"><table>'
    page, *grids = linked.split("<table>")
    for part, grid in zip(table.parts, grids, strict=True):
        names = len(part.layout.headings)
        page += scroll + grid.replace('<th scope="col">', '<th scope="col" class="name">', names)
    return page.replace("</table>", "</table></div>")
