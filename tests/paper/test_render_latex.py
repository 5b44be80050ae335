"""LaTeX by its structure: nothing here can run TeX."""

import re

import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_latex import escape, render_latex
from tests.paper.tables import build_table, everything, golden


@pytest.fixture(params=["everything", "smoke", *table_numbers()])
def table(request: pytest.FixtureRequest) -> PaperTable:
    if isinstance(request.param, int):
        return build_table(load_layout(request.param), [])
    return everything(smoke=request.param == "smoke")


def body(latex: str) -> list[str]:
    """Lines between the outer rules."""
    return latex.split("\\midrule\n", 1)[1].split("\n\\bottomrule")[0].splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]


def test_is_the_golden_file() -> None:
    latex = render_latex(everything())
    assert latex == golden("table.tex", latex)


def test_structure(table: PaperTable) -> None:
    latex = render_latex(table)
    plain = re.sub(r"\\[{}\\]", "", latex)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", latex) for word in ("begin", "end"))
    parts = len(table.parts)
    assert begun == ["table", *["tabular"] * parts]
    assert ended == begun[::-1]
    assert latex.count("$") - latex.count(r"\$") == 2 * len(re.findall(r"\$[^$]+\$", latex))
    assert [latex.count(f"\\{rule}rule") for rule in ("top", "bottom")] == [parts, parts]
    assert latex.isascii()
    # Comments stand in the first line alone.
    assert [i for i, line in enumerate(latex.splitlines()) if re.search(r"(?<!\\)%\s", line)] == [0]
    for special in "#_":
        outside = re.sub(r"\\(label|usepackage)\{[^}]*\}", "", latex)
        outside = re.sub(r"\\(re)?providecommand.*", "", outside)
        assert not re.search(rf"(?<!\\){special}", outside)


def test_every_row_has_every_column(table: PaperTable) -> None:
    grids = render_latex(table).split(r"\begin{tabular}")[1:]
    for part, latex in zip(table.parts, grids, strict=True):
        (columns,) = re.findall(r"^\{(c+)\}", latex)
        width = len(part.layout.headings) + len(part.layout.columns)
        rows = [line for line in body(latex) if line != r"\midrule"]
        assert len(columns) == width
        assert len(rows) == len(part.layout.rows)
        assert all(line.endswith(r" \\") for line in rows)
        assert {len(cells(line)) for line in rows} == {width}
        assert all(r"\shortstack{" in cell for line in rows for cell in cells(line)[-1:])


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50 % & #1 $x_y {z}", r"50 \% \& \#1 \$x\_y \{z\}"),
        ("a\\b~c^d", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d"),
        ('say "5 to 10" or "so"', "say ``5 to 10'' or ``so''"),
        ("τ=2, ε≠0 ± 1", r"$\tau$=2, $\epsilon$?0 $\pm$ 1"),
        ("Heat⁺ <|>", "Heat$^+$ $<$$|$$>$"),
        ("plain text.", "plain text."),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped
