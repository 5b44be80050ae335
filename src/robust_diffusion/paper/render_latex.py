"""A paper's table in LaTeX, laid out as the paper has it."""

from collections.abc import Iterator

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import Notes, compared, measured, reported
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.numbers import p_value

PREAMBLE = r"""% Needs \usepackage{booktabs,multirow,xcolor}.
\providecommand{\red}[1]{\textcolor{red}{#1}}
\providecommand{\blue}[1]{\textcolor{blue}{#1}}"""

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
    "·": r"$\cdot$",
    "–": "--",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def render_latex(table: PaperTable) -> str:
    """A `table` environment with booktabs rules, best in red and second best in blue.

    Below each measured number stands the reported one, with the difference and the corrected
    p-value, or the factor of times; remarks and notes go beneath the table.
    """
    notes = Notes(table)
    caption = [table.layout.caption, "Below each number, smaller, the paper's."]
    if any(entry.rank for _, _, entry in table):
        caption.append("Best in red, second best in blue.")
    remarks = [f"{table.title}.", *table.lines]
    remarks += [f"[{number}] {text}" for number, text in enumerate(notes.texts, start=1)]
    first, *others = ("\n".join(_grid(part, notes)) for part in table.parts)
    lines = [
        PREAMBLE,
        r"\begin{table}[!htp]",
        r"\centering",
        rf"\caption{{{escape(' '.join(caption))}}} \label{{tab:{table.layout.label}}}",
        r"\tiny",
        first,
        *(f"\\par\\medskip\n{grid}" for grid in others),
        *(rf"\par\smallskip\parbox{{\textwidth}}{{\tiny {escape(text)}}}" for text in remarks),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """The text for LaTeX to print as it is; a question mark for what it has no sign for."""
    # Every other quotation mark opens.
    for i in range(text.count('"')):
        text = text.replace('"', "''" if i % 2 else "``", 1)
    characters = (SPECIAL.get(c, c if c.isascii() and c.isprintable() else "?") for c in text)
    return "".join(characters)


def _grid(table: PaperTable, notes: Notes) -> Iterator[str]:
    layout = table.layout
    titles = [*layout.headings, *(column.label for column in layout.columns)]
    yield r"\makebox[\textwidth][c]{%"
    yield rf"\begin{{tabular}}{{{'c' * len(titles)}}}"
    yield r"\toprule"
    yield rf"{' & '.join(map(escape, titles))} \\"
    yield r"\midrule"
    for block in layout.blocks:
        if block[0] > 0 and layout.grouped and len(layout.headings) > 1:
            yield r"\midrule"
        for i in block:
            first, *others = (_label(label) for label in layout.rows[i].labels)
            if len(block) > 1:
                first = rf"\multirow{{{len(block)}}}{{*}}{{{first}}}" if i == block[0] else ""
            cells = [first, *others, *(_cell(e, table.decimals, notes) for e in table.entries[i])]
            yield rf"{' & '.join(cells)} \\"
    yield r"\bottomrule"
    yield r"\end{tabular}}"


def _label(label: str) -> str:
    return rf"\emph{{{label}}}" if label == "clean" else escape(label)


def _cell(entry: Entry, decimals: int, notes: Notes) -> str:
    above = escape(measured(entry, decimals))
    above = {1: rf"\red{{{above}}}", 2: rf"\blue{{{above}}}"}.get(entry.rank or 0, above)
    if numbers := notes.numbers(entry):
        above += rf"\textsuperscript{{{','.join(map(str, numbers))}}}"
    below = reported(entry, decimals)
    if (found := compared(entry, decimals)) is not None:
        p = "" if entry.p_holm is None else f"; p {p_value(entry.p_holm)}"
        below += f" ({found}{p})"
    # A fraction's size of its own; without braces it would end with the cell's first line.
    return rf"\shortstack{{{above} \\ {{\fontsize{{4}}{{5}}\selectfont {escape(below)}}}}}"
