"""Renderers of the paper's tables: Markdown (readable as text), LaTeX, HTML, CSV, data frame."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from robust_diffusion.paper.axes import AXES
from robust_diffusion.paper.layout import Grid
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.entry import Entry
from robust_diffusion.system.markdown import aligned
from robust_diffusion.system.numbers import p_value, places_for, signed, spread

if TYPE_CHECKING:
    import pandas as pd

LONGEST_REASON = 30
"""Characters of a reason that fit into a cell; the notes have the full text."""

IN_MARKDOWN = {1: "**{}**", 2: "_{}_"}
IN_HTML = {1: Markup("<strong>{}</strong>"), 2: Markup("<em>{}</em>")}
"""Formats of the best entry and of the second best."""

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,  # what records say is foreign text
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
"""Templates of all pages."""


def to_frame(table: PaperTable) -> "pd.DataFrame":
    """Return one row per entry with every number; all tables have the same columns."""
    common = {
        "table": table.layout.number,
        "label": table.layout.label,
        "scale": table.records.scale,
        "fidelity": table.records.fidelity or "paper",
    }

    def numbers(entry: Entry, *names: str) -> dict[str, Any]:
        return {name: getattr(entry, name) for name in names}

    rows = [
        {
            **common,
            "row": row.label,
            "column": column.label,
            **dict.fromkeys(AXES),
            **entry.keys,
            **numbers(entry, "graph", "state", "mean", "std"),
            **dict(zip(("q1", "q3"), entry.quartiles or (None, None), strict=True)),
            "n": len(entry.runs),
            "seeds": " ".join(str(run.seed) for run in entry.runs),
            "values": " ".join(str(run.value) for run in entry.runs),
            "printed_mean": entry.reported.mean,
            "printed_std": entry.reported.std,
            **numbers(entry, "difference", "factor", "deviations", "p", "p_holm", "test", "rank"),
            "marks": "; ".join(f"{mark.kind}: {mark.text}" for mark in entry.marks),
        }
        for row, column, entry in table
    ]
    import pandas as pd  # late: other forms of a table do without

    return pd.DataFrame(rows).astype({"rank": "Int64"})


def render_csv(table: PaperTable) -> str:
    """Render the data frame as CSV with a header."""
    return to_frame(table).to_csv(index=False)


def render_markdown(table: PaperTable) -> str:
    """Render title, remarks, the table and its notes.

    Each row of the paper becomes two, measured and reported, and a third where they can be
    compared: the difference with its corrected p-value, or the factor of times.
    """
    legend = ["Best in **bold**, second best in _italics_."] if _ranked(table) else []
    lines = [f"**{table.title}.** {table.layout.caption}", ""]
    lines += [f"- {line}" for line in [*table.lines, *legend]]
    for grid, (header, *rows) in _grids(table, IN_MARKDOWN):
        lines += ["", *aligned(header, rows, left=range(len(grid.headings) + 1))]
    if notes := _notes(table):
        lines += ["", *(f"- [{i}] {text}" for text, i in notes.items())]
    return "\n".join(lines) + "\n"


def render_html(table: PaperTable) -> str:
    """Render a `<figure>`: the caption with remarks, a table per grid, and the notes."""
    template = ENVIRONMENT.get_template("table.html.jinja")
    grids = [rows for _, rows in _grids(table, IN_HTML)]
    return template.render(table=table, grids=grids, notes=list(_notes(table)))


def render_latex(table: PaperTable) -> str:
    """Render a `tabular` per grid with booktabs rules; remarks and notes are comments above.

    The best entry is bold, the second best in italics. Signs such as ± and τ are Unicode.
    """
    import pandas as pd  # late: other forms of a table do without

    notes = (f"[{number}] {text}" for text, number in _notes(table).items())
    lines = ["% " + " ".join(line.split()) for line in [f"{table.title}.", *table.lines, *notes]]
    for _, (header, *rows) in _grids(table, {1: "**{}**", 2: "//{}//"}):
        text = pd.DataFrame(rows, columns=header).to_latex(index=False, escape=True)
        text = re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", text)
        lines += ["", re.sub(r"//(.*?)//", r"\\textit{\1}", text).rstrip()]
    return "\n".join(lines) + "\n"


def _ranked(table: PaperTable) -> bool:
    return any(entry.rank for _, _, entry in table)


def _notes(table: PaperTable) -> dict[str, int]:
    """Number the marks of a table from 1 in order of appearance; equal marks share a number."""
    texts = dict.fromkeys(mark.text for _, _, entry in table for mark in entry.marks)
    return {text: number for number, text in enumerate(texts, start=1)}


def _grids(table: PaperTable, formats: Mapping[int, str]) -> Iterator[tuple[Grid, list[list[str]]]]:
    """Yield each grid with its header and rows, as every format shows them."""
    notes, timed = _notes(table), table.layout.kind == "time"
    decimals = 2 if table.layout.kind == "accuracy" else 0
    paper, comparison = ("RTX 3090", "factor") if timed else ("printed", "difference")

    def here(entry: Entry) -> str:
        shown = formats.get(entry.rank or 0, "{}").format(_measured(entry, decimals))
        numbers = sorted({notes[mark.text] for mark in entry.marks})
        return shown + "".join(f" [{number}]" for number in numbers)

    def printed(entry: Entry) -> str:
        # The paper has times to the tenth of a millisecond.
        return spread(entry.reported.mean, entry.reported.std, 1 if timed else decimals)

    for grid, entries in table.grids:
        rows = [[*grid.headings, "", *(column.label for column in grid.columns)]]
        above = nothing = ("",) * len(grid.headings)
        for row, of_row in zip(grid.rows, entries, strict=True):
            labels = _unrepeated(row.labels, above) if grid.grouped else row.labels
            above = row.labels
            rows.append([*labels, "here", *map(here, of_row)])
            rows.append([*nothing, paper, *map(printed, of_row)])
            compared = [_compared(entry, decimals) for entry in of_row]
            if any(text != "-" for text in compared):
                rows.append([*nothing, comparison, *compared])
        yield grid, rows


def _measured(entry: Entry, decimals: int) -> str:
    """Format the measured number, or say in a few words why there is none."""
    if entry.quartiles is not None and entry.mean is not None:
        places = places_for(entry.mean, digits=3)
        return "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(entry.mean, *entry.quartiles, d=places)
    if entry.state == "measured":
        return spread(entry.mean, entry.std, decimals)
    return entry.state if entry.reason is None else _shortened(entry.reason)


def _compared(entry: Entry, decimals: int) -> str:
    """Format measured against reported: a difference with its p-value, or a factor of times."""
    if entry.factor is not None:
        return f"×{entry.factor:.{places_for(entry.factor, digits=2)}f}"
    p = "" if entry.p_holm is None else f" (p {p_value(entry.p_holm)})"
    return "-" if entry.difference is None else signed(entry.difference, decimals) + p


def _unrepeated(labels: Sequence[str], above: Sequence[str]) -> list[str]:
    """Return the labels of a row without those that the row above already has."""
    # The last label distinguishes rows, and a label below one that changed is repeated.
    start = next(i for i, label in enumerate(labels) if label != above[i] or i == len(labels) - 1)
    return [*[""] * start, *labels[start:]]


def _shortened(reason: str) -> str:
    # The folders of a path are the least informative part.
    reason = re.sub(r"[^\s:;,(]*/", "", reason).split(";")[0]
    if len(reason) <= LONGEST_REASON:
        return reason
    # Cut between words if that leaves more than the kind of failure.
    cut = reason[:LONGEST_REASON]
    words = cut.rpartition(" ")[0].rstrip(" :,")
    return f"{words if len(words) > LONGEST_REASON // 2 else cut[:-1]}…"
