"""Text of tables: the cells of views in Markdown, HTML or LaTeX."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from markupsafe import Markup

from robust_diffusion.results.view import View
from robust_diffusion.system.markdown import aligned
from robust_diffusion.system.numbers import p_value, places_for, signed, spread

if TYPE_CHECKING:
    from jinja2 import Template

Form = Literal["markdown", "html", "latex"]

LONGEST_REASON = 30
"""Characters of a reason that fit into a cell; the notes have the full text."""

RANKED: Mapping[Form, Mapping[int, str]] = {
    "markdown": {1: "**{}**", 2: "_{}_"},
    "html": {1: Markup("<strong>{}</strong>"), 2: Markup("<em>{}</em>")},
    "latex": {1: "**{}**", 2: "//{}//"},
}
"""Formats of the best cell and of the second best."""


@cache
def template(name: str) -> "Template":
    """Return the template of a page."""
    # Imported late, since text needs none of it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,  # what records say is foreign text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template(f"{name}.html.jinja")


@dataclass(frozen=True)
class Table:
    """Cells with everything around them."""

    title: str
    caption: str
    lines: Sequence[str]  # remarks on the whole table, a sentence each
    cells: pd.DataFrame  # result of `cells` for each view, numbered by `grid`
    views: Sequence[View]  # from top to bottom
    about: Mapping[str, str]  # data attributes of the HTML element


def show(table: Table, form: Form = "markdown") -> str:
    """Render a table: title, remarks, its grids and its notes.

    Each row becomes two, measured and printed, and a third where they can be compared: the
    difference with its corrected p-value, or the factor of times. In LaTeX, a grid is a `tabular`
    with booktabs rules, and remarks and notes are comments above; signs such as ± are Unicode. In
    HTML, a table is a `<figure>`.
    """
    texts = dict.fromkeys(mark.text for marks in table.cells["marks"] for mark in marks)
    notes = {text: number for number, text in enumerate(texts, start=1)}
    grids = [
        _grid(view, table.cells[table.cells["grid"] == place], notes, RANKED[form])
        for place, view in enumerate(table.views)
    ]
    if form == "html":
        return template("table").render(table=table, grids=grids, notes=list(notes))
    numbered = [f"[{number}] {text}" for text, number in notes.items()]
    if form == "latex":
        above = [f"{table.title}.", *table.lines, *numbered]
        lines = ["% " + " ".join(line.split()) for line in above]
        return "\n".join([*lines, *(f"\n{_tabular(*grid)}" for grid in grids)]) + "\n"
    ranked = table.cells["rank"].notna().any()
    legend = ["Best in **bold**, second best in _italics_."] if ranked else []
    lines = [f"**{table.title}.** {table.caption}", ""]
    lines += [f"- {line}" for line in [*table.lines, *legend]]
    for view, (header, *rows) in zip(table.views, grids, strict=True):
        lines += ["", *aligned(header, rows, left=range(len(view.rows) + 1))]
    return "\n".join([*lines, *[""] * bool(notes), *(f"- {note}" for note in numbered)]) + "\n"


def _tabular(header: Sequence[str], *rows: Sequence[str]) -> str:
    text = pd.DataFrame(list(rows), columns=list(header)).to_latex(index=False, escape=True)
    text = re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", text)
    return re.sub(r"//(.*?)//", r"\\textit{\1}", text).rstrip()


def _grid(
    view: View, cells: pd.DataFrame, notes: Mapping[str, int], ranked: Mapping[int, str]
) -> list[list[str]]:
    """Return header and rows of a grid as text."""
    timed, decimals = view.value == "seconds", view.decimals
    published, comparison = ("RTX 3090", "factor") if timed else ("printed", "difference")

    def here(cell: Any) -> str:
        rank = 0 if pd.isna(cell.rank) else int(cell.rank)
        text = ranked.get(rank, "{}").format(_measured(cell, timed, decimals))
        return text + "".join(f" [{n}]" for n in sorted({notes[mark.text] for mark in cell.marks}))

    lines: dict[tuple[str, ...], list[Any]] = {}
    header: dict[str, None] = {}
    for cell, keys in zip(cells.itertuples(), cells.to_dict("records"), strict=True):
        row, column = view.texts(keys)
        header[" ".join(column)] = None
        lines.setdefault(tuple(row), []).append(cell)
    grid = [[*view.headings, "", *header]]
    above = nothing = ("",) * len(view.rows)
    for labels, line in lines.items():
        grid.append([*(_unrepeated(labels, above) if view.grouped else labels), "here"])
        grid[-1] += map(here, line)
        above = labels
        # The printed times are to the tenth of a millisecond.
        printed = [spread(c.printed_mean, c.printed_std, 1 if timed else decimals) for c in line]
        grid.append([*nothing, published, *printed])
        texts = [_compared(cell, decimals) for cell in line]
        if any(text != "-" for text in texts):
            grid.append([*nothing, comparison, *texts])
    return grid


def _measured(cell: Any, timed: bool, decimals: int) -> str:
    """Format the measured number, or say in a few words why there is none."""
    if cell.state != "measured":
        reasons = (mark.text for mark in cell.marks if mark.kind == cell.state)
        reason = next(reasons, None)
        return cell.state if reason is None else _shortened(reason)
    if timed:
        places = places_for(cell.mean, digits=3)
        return "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(cell.mean, cell.q1, cell.q3, d=places)
    return spread(cell.mean, cell.std, decimals)


def _compared(cell: Any, decimals: int) -> str:
    """Format measured against printed: a difference with its p-value, or a factor of times."""
    if not math.isnan(cell.factor):
        return f"×{cell.factor:.{places_for(cell.factor, digits=2)}f}"
    p = "" if math.isnan(cell.p_holm) else f" (p {p_value(cell.p_holm)})"
    return signed(cell.difference, decimals) + p


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
