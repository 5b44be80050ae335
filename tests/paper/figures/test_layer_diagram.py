from pathlib import Path
from xml.etree import ElementTree

from robust_diffusion.paper.figures.layer_diagram import layer_diagram

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "figures" / "gode_layer.svg"


def test_the_documentation_shows_the_same_diagram() -> None:
    assert DOCUMENTATION.read_text(encoding="utf-8") == layer_diagram()


def test_it_is_accessible_and_self_contained() -> None:
    root = ElementTree.fromstring(layer_diagram())
    assert root.get("role") == "img"
    described = (root.get("aria-labelledby") or "").split()
    assert set(described) <= {element.get("id") for element in root}
    assert len(described) == 2
    assert layer_diagram().count("http") == 1  # the namespace
