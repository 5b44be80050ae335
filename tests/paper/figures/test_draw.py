import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.files import render


def panel(
    weight: np.ndarray, *, title: str = "Heat", num_nodes: int = 12, classes: int = 3
) -> Panel:
    generator = np.random.default_rng(0)
    ends = np.stack([generator.choice(num_nodes, 2, replace=False) for _ in weight])
    return Panel(
        title=title,
        note="a note",
        position=generator.uniform(-1, 1, (num_nodes, 2)),
        label=np.arange(num_nodes) % classes,
        ends=ends,
        weight=weight.astype(float),
    )


def lines(figure: Figure) -> list[LineCollection]:
    """The edges of each panel."""
    found = [c for axis in figure.axes for c in axis.collections if isinstance(c, LineCollection)]
    assert found
    return found


def greys(collection: LineCollection) -> np.ndarray:
    colours = np.asarray(collection.get_colors())
    assert np.allclose(colours[:, 0], colours[:, 1])
    return colours[:, 0]


def test_larger_weights_are_darker_and_wider() -> None:
    (drawn,) = lines(draw_panels([panel(np.array([0.3, 0.1, 0.9, 0.5]))], "attention"))
    assert (np.diff(greys(drawn)) < 0).all()  # drawn from light to dark
    assert (np.diff(drawn.get_linewidths()) > 0).all()


def test_one_scale_serves_all_panels() -> None:
    small, large = np.array([0.1, 0.2]), np.array([0.2, 0.8, 0.9])
    first, second = lines(draw_panels([panel(small), panel(large)], "attention"))
    assert greys(first).max() > greys(second).max()
    # The weight that both have is equally dark in both.
    assert greys(first)[-1] == pytest.approx(greys(second)[0])


def test_equal_weights_are_equally_dark() -> None:
    (drawn,) = lines(draw_panels([panel(np.full(5, 0.2))], "attention"))
    assert len(np.unique(greys(drawn))) == 1


def test_nodes_have_the_colour_of_their_class() -> None:
    axis = draw_panels([panel(np.ones(3), num_nodes=11)], "attention").axes[0]
    nodes = [c for c in axis.collections if isinstance(c, PathCollection)]
    assert [len(np.asarray(c.get_offsets())) for c in nodes] == [4, 4, 3]
    assert len({tuple(np.asarray(c.get_facecolor())[0]) for c in nodes}) == 3


def test_more_classes_than_colours_differ_in_shape() -> None:
    figure = draw_panels([panel(np.ones(3), num_nodes=60, classes=15)], "attention")
    nodes = [c for c in figure.axes[0].collections if isinstance(c, PathCollection)]
    looks = {
        (tuple(np.asarray(c.get_facecolor())[0]), len(c.get_paths()[0].vertices)) for c in nodes
    }
    assert len(looks) == 15


def test_titles_notes_and_a_warning_are_text() -> None:
    figure = draw_panels([panel(np.ones(2), title="Beltrami")], "attention", warning="smoke run")
    svg = render(figure, "svg").decode()
    for text in ("Beltrami", "a note", "attention", "class", "smoke run"):
        assert f">{text}</text>" in svg
    assert "smoke" not in render(draw_panels([panel(np.ones(2))], "attention"), "svg").decode()


@pytest.mark.parametrize("form", ["pdf", "png", "svg"])
def test_the_same_figure_is_the_same_file(form: str) -> None:
    first, second = (render(draw_panels([panel(np.arange(6.0))], "w"), form) for _ in range(2))
    assert first == second


def test_ten_thousand_edges_take_little_space() -> None:
    weight = np.random.default_rng(0).random(10_000)
    svg = render(draw_panels([panel(weight, num_nodes=3000, classes=7)], "attention"), "svg")
    assert len(svg) < 1_500_000
    assert svg.count(b"<image") <= 2
