"""A paper's table as a fragment of HTML: numbers to read, the rest in attributes."""

from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion.paper.layout import Line
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import (
    Notes,
    compared,
    fields,
    measured,
    one_run,
    reported,
    row_names,
)
from robust_diffusion.results.entry import Entry
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
    template = ENVIRONMENT.get_template("table.html.jinja")
    return template.render(
        table=table,
        id=figure_id(table),
        notes=Notes(table),
        ranks=RANKS,
        zip=zip,
        attributes=_attributes,
        details=partial(_details, table),
        measured=partial(measured, decimals=table.decimals),
        below=partial(_below, decimals=table.decimals),
    )


def figure_id(table: PaperTable) -> str:
    """Id of a table's figure, such as `table-3` or, of other runs, `table-3-released-smoke`."""
    parts = [table.layout.experiment]
    parts += [table.fidelity] if table.fidelity != "paper" else []
    parts += [table.scale] if table.scale != "full" else []
    return "-".join(parts)


def _attributes(row: Line, column: Line, entry: Entry) -> dict[str, str]:
    kinds = dict.fromkeys(mark.kind.replace(" ", "-") for mark in entry.marks)
    data = {**fields(row, column, entry), "marks": " ".join(kinds)}
    return {
        # Beyond twelve digits a logarithm or a power is the C library's choice, not the records'.
        key.replace("_", "-"): str(float(f"{v:.12g}") if isinstance(v, float) else v)
        for key, v in data.items()
        if v not in (None, "")
    }


def _below(entry: Entry, decimals: int) -> str:
    # A factor says more than the reported time alone, which is another machine's.
    factor = f", {compared(entry, decimals)}" if entry.factor is not None else ""
    return reported(entry, decimals) + factor


def _details(table: PaperTable, entry: Entry) -> str:
    """Lines that are shown when an entry is pointed at."""
    here, paper, comparison = row_names(table)
    decimals = table.decimals
    lines = [entry.state if entry.mean is None else f"{here}: {measured(entry, decimals)}"]
    if entry.runs:
        each = [f"{run.seed}: {one_run(entry, run.value, decimals)}" for run in entry.runs]
        lines.append(f"{entry.n} seeds: {', '.join(each)}" if entry.n > 1 else f"seed {each[0]}")
    lines.append(f"{paper}: {reported(entry, decimals)}")
    if (found := compared(entry, decimals)) is not None:
        lines.append(f"{comparison}: {found}")
    if entry.p is not None and entry.p_holm is not None:
        lines.append(f"p: {p_value(entry.p)}, corrected {p_value(entry.p_holm)} ({entry.test})")
    return "\n".join([*lines, *(mark.text for mark in entry.marks)])
