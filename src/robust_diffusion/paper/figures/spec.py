"""The paper's figures: the models side by side, and the note below each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from robust_diffusion.checks import check_choice
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import MODELS

Weights = Literal["carried", "attention"]
"""Weight of a drawn edge: attention A(Z), or the weight with which the flow carries features.

Attention is named in the paper's captions and can be compared between flows: the weights
that arrive at a node sum to 1 in each. The rows of A * B do not, they sum to about 1 / degree.
"""

Note = Literal["classes", "evenness"]

DATASET = "dataset=cora"
"""The paper's graph, unless the user names another."""

SAME_SCALE = (
    "The darker the edge, the larger its weight, on one scale for all panels; an edge is drawn "
    "once, with the mean weight of its two directions."
)


@dataclass(frozen=True)
class FigureSpec:
    """One figure.

    Args:
        name: On the command line.
        label: In the paper's source.
        caption: Text of the caption.
        panels: Title of each panel, from left to right, and the override that sets it apart.
        note: Statistic below each panel: the mean weight between and within classes, or the
            evenness of the weights that arrive at a node.
    """

    name: str
    label: str
    caption: str
    panels: tuple[tuple[str, str], ...]
    note: Note


def _flow(name: str) -> tuple[str, str]:
    title = MODELS[name][0] if name in MODELS else name.replace("_", " ").capitalize()
    return title, f"flow={name}"


FIGURES = {
    "flows": FigureSpec(
        name="flows",
        label="tsne_flows",
        caption="t-SNE of the last hidden representation after diffusion, coloured by class. "
        f"{SAME_SCALE}",
        panels=tuple(map(_flow, ("heat", "mean_curvature", "beltrami"))),
        note="classes",
    ),
    "lipschitz": FigureSpec(
        name="lipschitz",
        label="tsne_q2",
        caption="t-SNE of the last hidden representation after diffusion, coloured by class, "
        f"without and with spectral normalisation. {SAME_SCALE}",
        panels=(
            ("without spectral normalisation", "flow.spectral_norm=false"),
            ("with spectral normalisation", "flow.spectral_norm=true"),
        ),
        note="evenness",
    ),
}


def panel_overrides(figure: FigureSpec, given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """All overrides of each panel, by its title.

    `flow=a,b,c` replaces the panels of a figure that shows one per flow.

    Args:
        figure: The figure.
        given: The user's overrides.

    Raises:
        ConfigError: An override without a value, or one that differs between the panels.
    """
    for override in given:
        if "=" not in override:
            raise ConfigError(f"{override}: cannot be read; write key=value")
    panels, rest = figure.panels, list(given)
    if panels[0][1].startswith("flow="):
        rest = [override for override in given if not override.startswith("flow=")]
        flows = [override for override in given if override.startswith("flow=")]
        if flows:
            panels = tuple(map(_flow, flows[-1].removeprefix("flow=").split(",")))
    keys = {_key(override) for override in rest}
    for _, own in panels:
        if _key(own) in keys:
            raise ConfigError(f"{_key(own)}: is what figure {figure.name} compares; drop it")
    default = () if _key(DATASET) in keys else (DATASET,)
    return {title: (*default, own, *rest) for title, own in panels}


def figure_spec(name: str) -> FigureSpec:
    """A figure by its name.

    Raises:
        ConfigError: There is none of that name.
    """
    return FIGURES[check_choice("figure", name, FIGURES)]


def _key(override: str) -> str:
    return override.split("=", 1)[0].lstrip("+~")
