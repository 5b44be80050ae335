"""Diagram of one layer of a graph neural PDE."""

from pathlib import Path


def layer_diagram() -> str:
    """The diagram as SVG text.

    Reference: fig. (gode_layer), arXiv:2209.07754.
    """
    return Path(__file__).with_name("gode_layer.svg").read_text(encoding="utf-8")
