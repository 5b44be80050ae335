"""A paper's table in Markdown, aligned so that it also reads as plain text."""

from collections.abc import Sequence

from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import Notes, compared, ours, row_names, theirs
from robust_diffusion.results.numbers import p_value

LEGEND = "Best in **bold**, second best in _italics_."


def render_markdown(table: PaperTable) -> str:
    """A heading, what is to be said, the table, and its notes.

    Each row of the paper becomes two: ours, and the paper's; and a third with the difference and
    the corrected p-value, or of times with the factor, where there is one.

    Args:
        table: The table.
    """
    notes = Notes(table)
    ranked = any(entry.rank for _, _, entry in table)
    lines = [
        f"**{table.title}.** {table.layout.caption}",
        "",
        *(f"- {line}" for line in [*table.lines, *([LEGEND] if ranked else [])]),
    ]
    for part in table.parts:
        lines += ["", *_grid(part, notes)]
    if notes.texts:
        lines += ["", *(f"- [{i}] {text}" for i, text in enumerate(notes.texts, start=1))]
    return "\n".join(lines) + "\n"


def _grid(table: PaperTable, notes: Notes) -> list[str]:
    layout = table.layout
    here, paper, comparison = row_names(table)
    header = [*layout.headings, "", *(column.label for column in layout.columns)]
    body, above = [], ("",) * len(layout.headings)
    for row, entries in zip(layout.rows, table.entries, strict=True):
        labels = _unrepeated(row.labels, above) if layout.grouped else list(row.labels)
        above = row.labels
        nothing = [""] * len(labels)
        body.append([*labels, here, *(_ours(e, table, notes) for e in entries)])
        body.append([*nothing, paper, *(theirs(e, table.decimals) for e in entries)])
        if any(compared(entry, table.decimals) for entry in entries):
            body.append([*nothing, comparison, *(_compared(e, table.decimals) for e in entries)])
    return aligned(header, body, left=len(layout.headings) + 1)


def _ours(entry: Entry, table: PaperTable, notes: Notes) -> str:
    text = ours(entry, table.decimals)
    text = {1: f"**{text}**", 2: f"_{text}_"}.get(entry.rank or 0, text)
    return " ".join([text, *(f"[{number}]" for number in notes.numbers(entry))])


def _compared(entry: Entry, decimals: int) -> str:
    p = "" if entry.p_holm is None else f" (p {p_value(entry.p_holm)})"
    return (compared(entry, decimals) or "-") + p


def _unrepeated(labels: Sequence[str], above: Sequence[str]) -> list[str]:
    """Labels of a row, those left out that the row above has already."""
    same = [a == b for a, b in zip(labels, above, strict=True)]
    # The last label tells rows apart, and one below a label that changed says so again.
    return [
        "" if all(same[: i + 1]) and i < len(labels) - 1 else label
        for i, label in enumerate(labels)
    ]


def aligned(header: Sequence[str], body: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """The lines of a Markdown table whose columns also line up as plain text.

    Args:
        header: Headings.
        body: Rows, each as long as the header.
        left: Number of leading columns that are aligned to the left; the others to the right.
    """
    rows = [[cell.replace("|", "\\|") for cell in row] for row in [header, *body]]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width if i < left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    return [line(rows[0]), line(rule), *map(line, rows[1:])]
