"""The paper's figures: which models stand side by side, and what is said of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from robust_diffusion.checks import check_choice
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import MODELS

Weights = Literal["carried", "attention"]
"""What an edge is drawn by: attention A(Z), or the weight with which the flow carries features.

Attention is what the paper's captions name, and what can be compared between flows: the weights
that arrive at a node sum to 1 in each. The rows of A * B do not, they sum to about 1 / degree.
"""

Note = Literal["classes", "evenness"]

DEFAULTS = ("dataset=cora",)
"""The paper's graph; a figure's own options and the user's come after."""


@dataclass(frozen=True)
class PanelSpec:
    """One panel.

    Args:
        title: Stands above it.
        overrides: Options of its model.
    """

    title: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class FigureSpec:
    """One figure.

    Args:
        name: On the command line.
        label: In the paper's source.
        caption: What is seen.
        panels: From left to right.
        note: What is said below each panel: the mean weight between and within classes, or how
            even the weights are that arrive at a node.
    """

    name: str
    label: str
    caption: str
    panels: tuple[PanelSpec, ...]
    note: Note


def _flow(name: str) -> PanelSpec:
    title = MODELS[name][0] if name in MODELS else name.replace("_", " ").capitalize()
    return PanelSpec(title, (f"flow={name}",))


_SAME_SCALE = (
    "The darker the edge, the larger its weight, on one scale for all panels; an edge is drawn "
    "once, with the mean weight of its two directions."
)

FIGURES = {
    "flows": FigureSpec(
        name="flows",
        label="tsne_flows",
        caption="t-SNE of the last hidden representation after diffusion, coloured by class. "
        f"{_SAME_SCALE}",
        panels=tuple(map(_flow, ("heat", "mean_curvature", "beltrami"))),
        note="classes",
    ),
    "lipschitz": FigureSpec(
        name="lipschitz",
        label="tsne_q2",
        caption="t-SNE of the last hidden representation after diffusion, coloured by class, "
        f"without and with spectral normalisation. {_SAME_SCALE}",
        panels=(
            PanelSpec("without spectral normalisation", ("flow.spectral_norm=false",)),
            PanelSpec("with spectral normalisation", ("flow.spectral_norm=true",)),
        ),
        note="evenness",
    ),
}


def panel_overrides(
    figure: FigureSpec, given: Sequence[str]
) -> list[tuple[PanelSpec, tuple[str, ...]]]:
    """The panels of a figure and all options of each, the user's among them.

    `flow=a,b,c` takes the place of the panels of a figure that shows one per flow.

    Args:
        figure: Which.
        given: The user's overrides.

    Raises:
        ConfigError: An override without a value, or one that differs between the panels.
    """
    for override in given:
        if "=" not in override:
            raise ConfigError(f"{override}: cannot be read; write key=value")
    panels, rest = figure.panels, list(given)
    by_flow = panels[0].overrides[0].startswith("flow=")
    if by_flow:
        flows = [override for override in rest if override.startswith("flow=")]
        rest = [override for override in rest if override not in flows]
        if flows:
            panels = tuple(map(_flow, flows[-1].removeprefix("flow=").split(",")))
    keys = {_key(override) for override in rest}
    for panel in panels:
        for own in panel.overrides:
            if _key(own) in keys:
                raise ConfigError(f"{_key(own)}: is what figure {figure.name} compares; drop it")
    defaults = [default for default in DEFAULTS if _key(default) not in keys]
    return [(panel, (*defaults, *panel.overrides, *rest)) for panel in panels]


def figure_spec(name: str) -> FigureSpec:
    """A figure by its name.

    Raises:
        ConfigError: There is none of that name.
    """
    return FIGURES[check_choice("figure", name, FIGURES)]


def _key(override: str) -> str:
    return override.split("=", 1)[0].lstrip("+~")
