import math

from robust_diffusion.paper.figures.draw import render
from robust_diffusion.paper.figures.stability import SHOWN, SMALLEST, draw_stability


def rows(rate: float) -> list[dict[str, float]]:
    return [
        {"t": t, "norm": 1.0} | {key: math.exp(rate * t) for key in SHOWN}
        for t in (0.0, 1.0, 10.0, 100.0)
    ]


def test_a_line_per_flow_in_each_panel() -> None:
    figure = draw_stability({"Heat": rows(-1), "Growing": rows(0.1)})
    assert [axis.get_title() for axis in figure.axes] == list(SHOWN.values())
    for axis in figure.axes:
        falling, growing = axis.get_lines()[:2]
        assert list(falling.get_xdata()) == [1, 10, 100]
        assert falling.get_ydata()[-1] == SMALLEST
        assert growing.get_ydata()[-1] == math.exp(10)
    assert render(figure, "svg").count(b"Growing") == 1
