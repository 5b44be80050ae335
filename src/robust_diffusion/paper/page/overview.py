"""One line per table: what it holds, and what it lacks."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_diffusion.paper.page.embed import embed
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_html import figure_id

WITHOUT_LAYOUT = {
    4: ("data", "Statistics of the datasets. robust-diffusion data table shows them."),
}
"""Tables of the paper that are no grid of cells: label, and what they are."""


@dataclass(frozen=True)
class Section:
    """A table on the page.

    Args:
        number: Of the table.
        label: The table's in the paper's source.
        id: Anchor on the page.
        caption: The paper's.
        fragment: The table as HTML; empty where records cannot fill it.
        states: How many entries are in each state.
        missed: Entries that miss the paper's value.
        budgets: Its numbers are configured, not measured.
    """

    number: int
    label: str
    id: str
    caption: str
    fragment: str = ""
    states: tuple[tuple[str, int], ...] = ()
    missed: int = 0
    budgets: bool = False

    @property
    def measured(self) -> int:
        """Number of entries with a number."""
        return dict(self.states).get("measured", 0)

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(count for _, count in self.states)


def sections(tables: Sequence[PaperTable]) -> list[Section]:
    """A section for every table of the paper, in order.

    Args:
        tables: Those that have a layout.
    """
    found = {table.layout.number: _section(table) for table in tables}
    for number, (label, caption) in WITHOUT_LAYOUT.items():
        found.setdefault(number, Section(number, label, f"table-{number}", caption))
    return [found[number] for number in sorted(found)]


def _section(table: PaperTable) -> Section:
    budgets = table.layout.kind == "budgets"
    return Section(
        number=table.layout.number,
        label=table.layout.label,
        id=figure_id(table),
        caption=table.layout.caption,
        fragment=embed(table),
        states=tuple(table.header.states.items()),
        missed=0 if budgets else sum(entry.outside_tolerance for _, _, entry in table),
        budgets=budgets,
    )
