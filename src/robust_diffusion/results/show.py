"""Text of tables: their numbers in Markdown, HTML or LaTeX."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from markupsafe import Markup
from pandas.api.types import is_numeric_dtype

from robust_diffusion.results.marks import Mark
from robust_diffusion.results.view import View
from robust_diffusion.system.markdown import aligned
from robust_diffusion.system.numbers import MINUS, p_value, places_for

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

COLUMN_ENDS: Mapping[str, str] = {
    "±": " ± {}",  # standard deviation
    "q1": "",  # quartiles
    "q3": "",
    "quartiles": " ({})",
    "to": " to {}",  # upper end of an interval
    "p": " (p {})",  # of a test
    "*": "",  # whether the test is significant by Holm's method
    "of": " of {}",  # number of all
    "n": " (n={})",  # number behind the mean, where the row's is larger
    "failed": " ({} failed)",  # number of failed runs
    "!": " !",  # whether the number is no bound
}
"""Ends of the names of columns that belong to another: `worst ±` is the deviation of `worst`."""


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
    """Numbers with everything around them; the only type that `show` makes text of."""

    title: str
    cells: pd.DataFrame  # a line per row; or the `cells` of views, numbered by `grid`
    caption: str = ""
    lines: Sequence[str] = ()  # remarks above, a sentence each
    notes: Sequence[str] = ()  # remarks below
    formats: Mapping[str, str] = field(default_factory=dict)  # of numbers by column; else `{:.2f}`
    views: Sequence[View] = ()  # from top to bottom
    about: Mapping[str, str] = field(default_factory=dict)  # data attributes of the HTML element


def show(table: Table, form: Form = "markdown") -> str:
    """Render a table: title, remarks, its grids and its notes.

    Each row of a view becomes two, measured and printed, and a third where they can be compared:
    the difference with its corrected p-value, or the factor of times. In LaTeX, a grid is a
    `tabular` with booktabs rules, and remarks and notes are comments above; signs such as ± are
    Unicode. In HTML, a table is a `<figure>`.
    """
    numbers, numbered = _numbered(table.cells["marks"] if table.views else ())
    grids = [
        _grid(view, table.cells[table.cells["grid"] == place], numbers, RANKED[form])
        for place, view in enumerate(table.views)
    ] or [_lines(table, RANKED[form][1])]
    if form == "html":
        return template("table").render(table=table, grids=grids, numbered=numbered)
    notes = [*(f"[{number}] {text}" for number, text in enumerate(numbered, 1)), *table.notes]
    if form == "latex":
        above = [f"{table.title}." if table.title else table.caption, *table.lines, *notes]
        lines = ["% " + " ".join(line.split()) for line in above]
        return "\n".join([*lines, *(f"\n{_tabular(*grid)}" for grid in grids)]) + "\n"
    ranked = table.views and table.cells["rank"].notna().any()
    legend = ["Best in **bold**, second best in _italics_."] if ranked else []
    remarks = [f"- {line}" for line in [*table.lines, *legend]]
    head = " ".join(filter(None, [table.title and f"**{table.title}.**", table.caption]))
    named = [[*range(len(view.rows) + 1)] for view in table.views] or [_names(table.cells)]
    blocks = [[head] if head else [], remarks]
    blocks += [aligned(of[0], of[1:], left=left) for of, left in zip(grids, named, strict=True)]
    blocks.append([f"- {note}" for note in notes])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _numbered(marks: Iterable[Sequence[Mark]]) -> tuple[dict[str, int], list[str]]:
    """Return the number of each remark, by its code or text, and the texts in that order."""
    by_code: dict[str, dict[Mark, None]] = {}
    for mark in (mark for of_cell in marks for mark in of_cell):
        by_code.setdefault(mark.code or mark.text, {})[mark] = None
    numbers = {code: number for number, code in enumerate(by_code, start=1)}
    texts = []
    for mark, *others in map(list, by_code.values()):
        same = all(other.of_table == mark.of_table for other in others)
        more = "" if same else " (other numbers in other cells)"
        texts.append(f"{mark.of_table}{more}; not a bound" if others else mark.text)
    return numbers, texts


def _columns(cells: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the columns that are shown, each with the columns of its parts."""
    columns: dict[str, dict[str, str]] = {}
    for name in map(str, cells.columns):
        base, _, part = name.rpartition(" ")
        if base in columns and part in COLUMN_ENDS:
            columns[base][part] = name
        else:
            columns[name] = {}
    return columns


def _names(cells: pd.DataFrame) -> list[int]:
    """Return the places of the shown columns that hold text."""
    shown = enumerate(_columns(cells))
    return [place for place, name in shown if not is_numeric_dtype(cells[name])]


def _lines(table: Table, bold: str) -> list[list[str]]:
    """Return header and rows of a frame as text; the first of several lines of a cell is bold."""

    def text(value: Any, parts: Mapping[str, Any], form: str | None) -> str:
        head, newline, rest = _text(value, parts, form).partition("\n")
        return bold.format(head) + newline + rest if newline else head

    columns, formats = _columns(table.cells), table.formats
    return [
        [*columns],
        *(
            [
                text(row[name], {key: row[of] for key, of in parts.items()}, formats.get(name))
                for name, parts in columns.items()
            ]
            for row in table.cells.to_dict("records")
        ),
    ]


def _text(value: Any, parts: Mapping[str, Any], form: str | None = None) -> str:
    """Format a value with its parts; a dash if it is missing."""
    parts = {key: x for key, x in parts.items() if not _missing(x) and (x or isinstance(x, float))}
    form = form or "{:.2f}"
    if isinstance(value, tuple):
        return ", ".join(_number(one, form) for one in value)
    if _missing(value):
        return "failed" if "failed" in parts else "-"
    if "q1" in parts:
        form = f"{{:.{places_for(value, digits=3)}f}}"
        parts["quartiles"] = "–".join(_number(parts[end], form) for end in ("q1", "q3"))
    if "p" in parts:
        parts["p"] = p_value(parts["p"]) + "*" * ("*" in parts)
    text = _number(value, form) if form != "p" else p_value(value) + "*" * ("*" in parts)
    return text + "".join(
        words.format(_number(parts[part], form))
        for part, words in COLUMN_ENDS.items()
        if part in parts
    )


def _number(value: Any, form: str) -> str:
    """Format a number; a plus in the form shows the sign of any that does not round to 0."""
    if isinstance(value, str | int | np.integer):
        return str(value)
    text = form.format(value)
    if "+" in form:
        text = text.replace("-", MINUS) if float(text) else text.lstrip("+-")
    return text


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or value in ("", ()) or value != value


def _tabular(header: Sequence[str], *rows: Sequence[str]) -> str:
    text = pd.DataFrame(list(rows), columns=list(header)).to_latex(index=False, escape=True)
    text = re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", text)
    return re.sub(r"//(.*?)//", r"\\textit{\1}", text).rstrip()


def _grid(
    view: View, cells: pd.DataFrame, numbers: Mapping[str, int], ranked: Mapping[int, str]
) -> list[list[str]]:
    """Return header and rows of a grid as text."""
    timed, decimals = view.value == "seconds", view.decimals
    published, comparison = ("RTX 3090", "factor") if timed else ("printed", "difference")

    def here(cell: Any) -> str:
        rank = 0 if pd.isna(cell.rank) else int(cell.rank)
        text = ranked.get(rank, "{}").format(_measured(cell, decimals))
        places = sorted({numbers[mark.code or mark.text] for mark in cell.marks})
        return text + "".join(f" [{place}]" for place in places)

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
        form = f"{{:.{1 if timed else decimals}f}}"
        printed = [_text(cell.printed_mean, {"±": cell.printed_std}, form) for cell in line]
        grid.append([*nothing, published, *printed])
        texts = [_compared(cell, decimals) for cell in line]
        if any(text != "-" for text in texts):
            grid.append([*nothing, comparison, *texts])
    return grid


def _measured(cell: Any, decimals: int) -> str:
    """Format the measured number, or say in a few words why there is none."""
    if cell.state != "measured":
        reasons = (mark.text for mark in cell.marks if mark.kind == cell.state)
        reason = next(reasons, None)
        return cell.state if reason is None else _shortened(reason)
    parts = {"±": cell.std} if pd.isna(cell.q1) else {"q1": cell.q1, "q3": cell.q3}
    return _text(cell.mean, parts, f"{{:.{decimals}f}}")


def _compared(cell: Any, decimals: int) -> str:
    """Format measured against printed: a difference with its p-value, or a factor of times."""
    if not math.isnan(cell.factor):
        return f"×{cell.factor:.{places_for(cell.factor, digits=2)}f}"
    return _text(cell.difference, {"p": cell.p_holm}, f"{{:+.{decimals}f}}")


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
