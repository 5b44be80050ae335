"""A paper's table as a fragment of HTML: numbers to read, the rest in attributes."""

from collections.abc import Iterator
from html import escape

from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.layout import Line
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import Notes, compared, one_run, ours, row_names, theirs
from robust_diffusion.results.numbers import p_value

RANKS = {1: ("best", "strong"), 2: ("second", "em")}


def render_html(table: PaperTable) -> str:
    """A `<figure>` with a semantic table for each grid, one `<td>` per entry.

    Every number of an entry is an attribute `data-...` of its cell; `title` says them in words,
    and cells can be reached with the keyboard. The id is `table-3`, or `table-3-released-smoke` for
    other runs. Classes: `best`, `second`, and the state.

    Args:
        table: The table.
    """
    layout, notes = table.layout, Notes(table)
    captions = [f"<strong>{escape(table.title)}.</strong> {escape(layout.caption)}", "Continued"]
    lines = [
        f'<figure class="paper-table" id="{figure_id(table)}" data-label="{escape(layout.label)}" '
        f'data-scale="{escape(table.scale)}" data-fidelity="{escape(table.fidelity)}">',
        *(
            line
            for part, caption in zip(table.parts, captions, strict=False)
            for line in _grid(part, caption, notes)
        ),
        "<figcaption>",
        f'<ul class="about">{_items(table.lines)}</ul>',
    ]
    if notes.texts:
        lines.append(f'<ol class="notes">{_items(notes.texts)}</ol>')
    return "\n".join([*lines, "</figcaption>", "</figure>", ""])


def _grid(table: PaperTable, caption: str, notes: Notes) -> Iterator[str]:
    layout = table.layout
    head = "".join(
        f'<th scope="col">{escape(text)}</th>'
        for text in [*layout.headings, *(column.label for column in layout.columns)]
    )
    yield from ("<table>", f"<caption>{caption}</caption>", f"<thead><tr>{head}</tr></thead>")
    yield from _body(table, notes)
    yield "</table>"


def figure_id(table: PaperTable) -> str:
    """Id of a table's figure; a page may hold several views of one table."""
    parts = [table.layout.experiment]
    parts += [table.fidelity] if table.fidelity != "paper" else []
    parts += [table.scale] if table.scale != "full" else []
    return "-".join(parts)


def _items(texts: list[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _body(table: PaperTable, notes: Notes) -> Iterator[str]:
    """One `<tbody>` for each block of rows that share their first label."""
    layout = table.layout
    for block in layout.blocks:
        yield "<tbody>"
        for i in block:
            row = layout.rows[i]
            cells = [f'<th scope="row">{escape(label)}</th>' for label in row.labels[1:]]
            if i == block[0]:
                scope = "rowgroup" if len(block) > 1 else "row"
                span = f' rowspan="{len(block)}"' if len(block) > 1 else ""
                cells.insert(0, f'<th scope="{scope}"{span}>{escape(row.labels[0])}</th>')
            cells += [
                _cell(row, column, entry, table, notes)
                for column, entry in zip(layout.columns, table.entries[i], strict=True)
            ]
            yield f"<tr>{''.join(cells)}</tr>"
        yield "</tbody>"


def _cell(row: Line, column: Line, entry: Entry, table: PaperTable, notes: Notes) -> str:
    data = {
        "row": row.label,
        "column": column.label,
        **entry.line.keys,
        "graph": entry.graph,
        "state": entry.state,
        "mean": entry.mean,
        "std": entry.std,
        "q1": entry.quartiles[0] if entry.quartiles else None,
        "q3": entry.quartiles[1] if entry.quartiles else None,
        "n": entry.n,
        "seeds": " ".join(map(str, entry.seeds)),
        "values": " ".join(str(run.value) for run in entry.runs),
        "printed-mean": entry.printed.mean,
        "printed-std": entry.printed.std,
        "difference": entry.difference,
        "factor": entry.factor,
        "deviations": entry.deviations,
        "p": entry.p,
        "p-holm": entry.p_holm,
        "test": entry.test,
        "rank": entry.rank,
        "marks": " ".join(dict.fromkeys(mark.kind.replace(" ", "-") for mark in entry.marks)),
    }
    attributes = "".join(
        f' data-{key}="{escape(_attribute(value))}"'
        for key, value in data.items()
        if value is not None and value != ""
    )
    rank, element = RANKS.get(entry.rank or 0, ("", "span"))
    classes = f"{entry.state.replace(' ', '-')} {rank}".rstrip()
    numbers = ", ".join(map(str, notes.numbers(entry)))
    marks = f"<sup>{numbers}</sup>" if numbers else ""
    return (
        f'<td class="{classes}" tabindex="0" title="{escape(_details(entry, table))}"{attributes}>'
        f'<{element} class="ours">{escape(ours(entry, table.decimals))}</{element}>{marks}'
        f'<br><small class="printed">{escape(_below(entry, table))}</small></td>'
    )


def _attribute(value: str | float) -> str:
    # Beyond twelve digits a logarithm or a power is the C library's choice, not the records'.
    return str(float(f"{value:.12g}")) if isinstance(value, float) else str(value)


def _below(entry: Entry, table: PaperTable) -> str:
    printed = theirs(entry, table.decimals)
    # A factor says more than the printed time alone, which is another machine's.
    factor = compared(entry, table.decimals) if entry.factor is not None else None
    return f"{printed}, {factor}" if factor else printed


def _details(entry: Entry, table: PaperTable) -> str:
    """What hovering over an entry shows, a line each."""
    here, paper, comparison = row_names(table)
    lines = [f"{here}: {ours(entry, table.decimals)}" if entry.mean is not None else entry.state]
    if entry.runs:
        each = ", ".join(
            f"{run.seed}: {one_run(entry, run.value, table.decimals)}" for run in entry.runs
        )
        lines.append(f"{entry.n} seeds: {each}" if entry.n > 1 else f"seed {each}")
    lines.append(f"{paper}: {theirs(entry, table.decimals)}")
    if (found := compared(entry, table.decimals)) is not None:
        lines.append(f"{comparison}: {found}")
    if entry.p is not None and entry.p_holm is not None:
        lines.append(f"p: {p_value(entry.p)}, corrected {p_value(entry.p_holm)} ({entry.test})")
    return "\n".join([*lines, *(mark.text for mark in entry.marks)])
