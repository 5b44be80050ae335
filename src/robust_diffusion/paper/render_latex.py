"""A paper's table in LaTeX, laid out as the paper has it."""

from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import Notes, compared, ours, theirs
from robust_diffusion.results.numbers import p_value

PREAMBLE = r"""% Needs \usepackage{booktabs,multirow,xcolor}.
\providecommand{\red}[1]{\textcolor{red}{#1}}
\providecommand{\blue}[1]{\textcolor{blue}{#1}}
"""

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "τ": r"$\tau$",
    "ε": r"$\epsilon$",
    "⁺": "$^+$",
    "…": r"\dots{}",
    "–": "--",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def render_latex(table: PaperTable) -> str:
    """A `table` environment with booktabs rules, best in red and second best in blue.

    Below each of our numbers stands the paper's, with the difference and the corrected p-value, or
    of times with the factor; what is to be said of the table goes beneath it.

    Args:
        table: The table.
    """
    layout, notes = table.layout, Notes(table)
    ranked = any(entry.rank for _, _, entry in table)
    caption = [layout.caption, "Below each number, smaller, the paper's."]
    if ranked:
        caption.append("Best in red, second best in blue.")
    said = [f"{table.title}.", *table.lines]
    said += [f"[{number}] {text}" for number, text in enumerate(notes.texts, start=1)]
    return "\n".join(
        [
            PREAMBLE.rstrip(),
            r"\begin{table}[!htp]",
            r"\centering",
            rf"\caption{{{escape(' '.join(caption))}}} \label{{tab:{layout.label}}}",
            r"\tiny",
            *_grid(table, notes),
            *(line for part in table.parts[1:] for line in [r"\par\medskip", *_grid(part, notes)]),
            *(rf"\par\smallskip\parbox{{\textwidth}}{{\tiny {escape(text)}}}" for text in said),
            r"\end{table}",
            "",
        ]
    )


def _grid(table: PaperTable, notes: Notes) -> list[str]:
    layout = table.layout
    width = len(layout.headings) + len(layout.columns)
    titles = [*layout.headings, *(column.label for column in layout.columns)]
    return [
        r"\makebox[\textwidth][c]{%",
        rf"\begin{{tabular}}{{{'c' * width}}}",
        r"\toprule",
        rf"{' & '.join(map(escape, titles))} \\",
        r"\midrule",
        *_body(table, notes),
        r"\bottomrule",
        r"\end{tabular}}",
    ]


def escape(text: str) -> str:
    """The text for LaTeX to print as it is.

    Args:
        text: Any text; what LaTeX has no sign for by default becomes a question mark.
    """
    opened = text.count('"')
    # Every other quotation mark opens.
    for i in range(opened):
        text = text.replace('"', "''" if i % 2 else "``", 1)
    characters = (SPECIAL.get(c, c if c.isascii() and c.isprintable() else "?") for c in text)
    return "".join(characters)


def _body(table: PaperTable, notes: Notes) -> list[str]:
    """The rows; those that share their first label are one block."""
    layout = table.layout
    lines: list[str] = []
    for block in layout.blocks:
        if lines and layout.grouped and len(layout.headings) > 1:
            lines.append(r"\midrule")
        for i in block:
            first, *others = (_label(label) for label in layout.rows[i].labels)
            if len(block) > 1:
                first = rf"\multirow{{{len(block)}}}{{*}}{{{first}}}" if i == block[0] else ""
            cells = [first, *others, *(_cell(e, table, notes) for e in table.entries[i])]
            lines.append(rf"{' & '.join(cells)} \\")
    return lines


def _label(label: str) -> str:
    return rf"\emph{{{label}}}" if label == "clean" else escape(label)


def _cell(entry: Entry, table: PaperTable, notes: Notes) -> str:
    own = escape(ours(entry, table.decimals))
    own = {1: rf"\red{{{own}}}", 2: rf"\blue{{{own}}}"}.get(entry.rank or 0, own)
    if numbers := notes.numbers(entry):
        own += rf"\textsuperscript{{{','.join(map(str, numbers))}}}"
    below = theirs(entry, table.decimals)
    if (found := compared(entry, table.decimals)) is not None:
        below += f" ({found}"
        below += f"; p {p_value(entry.p_holm)})" if entry.p_holm is not None else ")"
    # A fraction's size of its own; without braces it would end with the cell's first line.
    return rf"\shortstack{{{own} \\ {{\fontsize{{4}}{{5}}\selectfont {escape(below)}}}}}"
