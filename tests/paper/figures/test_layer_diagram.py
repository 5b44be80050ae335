from pathlib import Path
from xml.etree import ElementTree

from robust_diffusion.paper.figures.layer_diagram import HEIGHT, WIDTH, layer_diagram

COMMITTED = Path(__file__).parents[3] / "docs" / "figures" / "gode_layer.svg"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_of_the_documentation_is_what_the_program_draws() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == layer_diagram()


def test_everything_lies_inside_the_picture() -> None:
    root = ElementTree.fromstring(layer_diagram())
    for text in root.iter(f"{SVG}text"):
        size, middle = float(text.get("font-size", 0)), float(text.get("x", 0))
        # No letter is wider than its height.
        width = 0.62 * size * len("".join(text.itertext()))
        left = {"start": middle, "middle": middle - width / 2, "end": middle - width}
        start = left[text.get("text-anchor", "start")]
        assert start >= 0
        assert start + width <= WIDTH
        assert size <= float(text.get("y", 0)) <= HEIGHT
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.get("x", 0)), float(box.get("y", 0))
        assert x + float(box.get("width", 0)) <= WIDTH
        assert y + float(box.get("height", 0)) <= HEIGHT


def test_it_can_be_read_aloud_and_needs_no_network() -> None:
    root = ElementTree.fromstring(layer_diagram())
    assert root.get("role") == "img"
    described = (root.get("aria-labelledby") or "").split()
    ids = {element.get("id") for element in root}
    assert set(described) <= ids
    assert layer_diagram().count("http") == 1  # the namespace
