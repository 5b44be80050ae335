"""A paper's table in Markdown, aligned so that it also reads as plain text."""

from collections.abc import Iterator, Mapping, Sequence
from operator import add

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import Notes, compared, measured, reported, row_names
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.markdown import aligned
from robust_diffusion.results.numbers import p_value

MARKS = {1: "**{}**", 2: "_{}_"}
LEGEND = "Best in **bold**, second best in _italics_."


def render_markdown(table: PaperTable) -> str:
    """Title, remarks, the table and its notes.

    Each row of the paper becomes two, measured and reported, and a third where they can be
    compared: the difference with its corrected p-value, or the factor of times.
    """
    notes = Notes(table)
    legend = [LEGEND] if any(entry.rank for _, _, entry in table) else []
    lines = [f"**{table.title}.** {table.layout.caption}", ""]
    lines += [f"- {line}" for line in [*table.lines, *legend]]
    for part in table.parts:
        header, rows = grid(part, notes, MARKS)
        lines += ["", *aligned(header, rows, left=len(part.layout.headings) + 1)]
    if notes.texts:
        lines += ["", *(f"- [{i}] {text}" for i, text in enumerate(notes.texts, start=1))]
    return "\n".join(lines) + "\n"


def grid(
    table: PaperTable, notes: Notes, marks: Mapping[int, str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one grid, as every format for reading shows them.

    Args:
        table: Its own entries, without those of the grid below.
        notes: Of the whole table.
        marks: By rank, the format of the best entry and of the second best.
    """
    layout = table.layout
    header = [*layout.headings, "", *(column.label for column in layout.columns)]
    return header, list(_rows(table, notes, marks))


def _rows(table: PaperTable, notes: Notes, marks: Mapping[int, str]) -> Iterator[list[str]]:
    layout, decimals = table.layout, table.decimals
    here, paper, comparison = row_names(table)
    above = nothing = ("",) * len(layout.headings)
    for row, entries in zip(layout.rows, table.entries, strict=True):
        labels = _unrepeated(row.labels, above) if layout.grouped else row.labels
        above = row.labels
        numbers = [marks.get(e.rank or 0, "{}").format(measured(e, decimals)) for e in entries]
        cited = ["".join(f" [{number}]" for number in notes.numbers(e)) for e in entries]
        yield [*labels, here, *map(add, numbers, cited)]
        yield [*nothing, paper, *(reported(entry, decimals) for entry in entries)]
        if any(compared(entry, decimals) for entry in entries):
            yield [*nothing, comparison, *(_compared(entry, decimals) for entry in entries)]


def _compared(entry: Entry, decimals: int) -> str:
    p = "" if entry.p_holm is None else f" (p {p_value(entry.p_holm)})"
    return (compared(entry, decimals) or "-") + p


def _unrepeated(labels: Sequence[str], above: Sequence[str]) -> list[str]:
    """Labels of a row, without those that the row above has already."""
    same = [a == b for a, b in zip(labels, above, strict=True)]
    # The last label tells rows apart, and one below a label that changed is said again.
    return [
        "" if all(same[: i + 1]) and i < len(labels) - 1 else label
        for i, label in enumerate(labels)
    ]
