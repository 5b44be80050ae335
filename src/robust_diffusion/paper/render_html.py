"""A paper's table as a fragment of HTML: numbers to read, the rest in attributes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion.paper import wording
from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import Notes, fields, row_names
from robust_diffusion.results.numbers import p_value

RANKS = {None: ("", "span"), 1: (" best", "strong"), 2: (" second", "em")}
"""Class and element of an entry by its rank."""

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,  # what records say is foreign text
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render_html(table: PaperTable) -> str:
    """A `<figure>` with a semantic table for each grid, one `<td>` per entry.

    Every number of an entry is an attribute `data-...` of its cell; `title` says them in words,
    and cells can be reached with the keyboard. Classes of a cell: its state, `best`, `second`.
    """
    notes = Notes(table)

    def cells(part: PaperTable, row: int) -> Iterator[Mapping[str, Any]]:
        lines = part.layout.rows[row], part.layout.columns
        for column, entry in zip(lines[1], part.entries[row], strict=True):
            rank, element = RANKS[entry.rank]
            kinds = dict.fromkeys(mark.kind.replace(" ", "-") for mark in entry.marks)
            data = {**fields(lines[0], column, entry), "marks": " ".join(kinds)}
            yield {
                "classes": entry.state.replace(" ", "-") + rank,
                "element": element,
                "data": _attributes(data),
                "details": "\n".join(_details(entry, table)),
                "measured": wording.measured(entry, table.decimals),
                "below": _below(entry, table.decimals),
                "notes": ", ".join(map(str, notes.numbers(entry))),
            }

    template = ENVIRONMENT.get_template("table.html.jinja")
    return template.render(table=table, id=figure_id(table), cells=cells, notes=notes.texts)


def figure_id(table: PaperTable) -> str:
    """Id of a table's figure, such as `table-3` or, of other runs, `table-3-released-smoke`."""
    parts = [table.layout.experiment]
    parts += [table.fidelity] if table.fidelity != "paper" else []
    parts += [table.scale] if table.scale != "full" else []
    return "-".join(parts)


def _attributes(data: Mapping[str, str | float | None]) -> dict[str, str]:
    # Beyond twelve digits a logarithm or a power is the C library's choice, not the records'.
    return {
        key.replace("_", "-"): f"{float(f'{value:.12g}')}"
        if isinstance(value, float)
        else str(value)
        for key, value in data.items()
        if value not in (None, "")
    }


def _below(entry: Entry, decimals: int) -> str:
    # A factor says more than the reported time alone, which is another machine's.
    factor = f", {wording.compared(entry, decimals)}" if entry.factor is not None else ""
    return wording.reported(entry, decimals) + factor


def _details(entry: Entry, table: PaperTable) -> Iterator[str]:
    """Lines that are shown when an entry is pointed at."""
    here, paper, comparison = row_names(table)
    decimals = table.decimals
    yield entry.state if entry.mean is None else f"{here}: {wording.measured(entry, decimals)}"
    if entry.runs:
        each = ", ".join(
            f"{run.seed}: {wording.one_run(entry, run.value, decimals)}" for run in entry.runs
        )
        yield f"{entry.n} seeds: {each}" if entry.n > 1 else f"seed {each}"
    yield f"{paper}: {wording.reported(entry, decimals)}"
    if (found := wording.compared(entry, decimals)) is not None:
        yield f"{comparison}: {found}"
    if entry.p is not None and entry.p_holm is not None:
        yield f"p: {p_value(entry.p)}, corrected {p_value(entry.p_holm)} ({entry.test})"
    yield from (mark.text for mark in entry.marks)
