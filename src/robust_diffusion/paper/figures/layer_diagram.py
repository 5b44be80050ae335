"""The diagram of one layer of a graph neural PDE (fig. gode_layer) as an SVG of its own."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 760, 304
BLUE, RED, GREY, INK = "#4477aa", "#b2182b", "#8a8a8a", "#1b1b1b"

NODES = ((0, 40), (34, 4), (70, 30), (58, 78), (14, 84))
EDGES = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2))
"""A small graph, drawn before and after the diffusion."""

BEFORE = ("#d73027", "#fc8d59", "#91bfdb", "#4575b4", "#fee090")
AFTER = ("#f4a582", "#f4a582", "#d1e5f0", "#92c5de", "#f7e1d3")


def layer_diagram() -> str:
    """The diagram, as SVG text.

    Reference: fig. (gode_layer), arXiv:2209.07754.
    """
    parts = [
        _box(10, 96, 92, 74, ["LayerNorm"], GREY),
        _arrow(102, 133, 126),
        _box(126, 96, 92, 74, ["Linear", "*W*, *b*"], BLUE),
        _arrow(218, 133, 244),
        _box(244, 34, 370, 198, [], RED),
        _text(429, 56, "diffusion over the graph, t from 0 to T", size=13, colour=RED),
        _graph(268, 86, BEFORE, "*Z*(0)"),
        _graph(518, 86, AFTER, "*Z*(T)"),
        _arrow(364, 128, 500),
        _text(432, 117, "d*Z*/dt = *Q Z*", size=15),
        _text(432, 150, "solver: steps,", size=11, colour=GREY),
        _text(432, 165, "NFE, adjoint", size=11, colour=GREY),
        _arrow(614, 133, 640),
        _box(640, 96, 106, 74, ["ReLU", "dropout"], GREY),
        _text(56, 84, "input *X*", size=12),
        _text(693, 84, "to layer i + 1", size=12),
        _text(693, 190, "not after the last", size=11, colour=GREY),
        *_equations(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title description" '
        'font-family="Helvetica, Arial, DejaVu Sans, sans-serif">\n'
        '<title id="title">Layer i of a graph neural PDE</title>\n'
        '<desc id="description">Layer normalisation, a linear map, diffusion of the result over '
        "the graph by an ordinary differential equation, then ReLU and dropout.</desc>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _equations() -> Sequence[str]:
    lines = (
        ("heat, GRAND/BLEND", "*Q* = *A*(*Z*) − *I*"),
        ("mean curvature, Beltrami", "*Q* = *A*(*Z*) ⊙ *B*(*Z*) − *Ψ*(*Z*)"),
    )
    texts = []
    for row, (name, equation) in enumerate(lines):
        y = 262 + 26 * row
        texts += [
            _text(420, y, name, anchor="end", size=13, colour=GREY),
            _text(436, y, equation, anchor="start", size=15),
        ]
    return texts


def _box(x: int, y: int, width: int, height: int, lines: Sequence[str], colour: str) -> str:
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" fill="{colour}" '
        f'fill-opacity="0.08" stroke="{colour}" stroke-width="1.4"/>'
    ]
    first = y + height / 2 + 5 - 10 * (len(lines) - 1)
    for i, line in enumerate(lines):
        parts.append(_text(x + width / 2, first + 20 * i, line, size=14))
    return "\n".join(parts)


def _arrow(x: int, y: int, to: int) -> str:
    return (
        f'<path d="M{x} {y}H{to - 2}" stroke="{INK}" stroke-width="1.5" fill="none" '
        'marker-end="url(#tip)"/>'
    )


def _graph(x: int, y: int, colours: Sequence[str], name: str) -> str:
    parts = []
    for a, b in EDGES:
        (ax, ay), (bx, by) = NODES[a], NODES[b]
        parts.append(
            f'<path d="M{x + ax} {y + ay}L{x + bx} {y + by}" stroke="{GREY}" stroke-width="1.6"/>'
        )
    for (nx, ny), colour in zip(NODES, colours, strict=True):
        parts.append(f'<circle cx="{x + nx}" cy="{y + ny}" r="10" fill="{colour}" stroke="{INK}"/>')
    parts.append(_text(x + 36, y + 128, name, size=14))
    return "\n".join(parts)


def _text(
    x: float, y: float, text: str, *, size: int, colour: str = INK, anchor: str = "middle"
) -> str:
    """A line of text; what stands between asterisks, a matrix, is bold."""
    parts = [
        f'<tspan font-weight="bold">{escape(part)}</tspan>' if i % 2 else escape(part)
        for i, part in enumerate(text.split("*"))
    ]
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}">{"".join(parts)}</text>'
    )
