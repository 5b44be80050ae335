"""The paper's figures: the models side by side, and the note below each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
    """One figure."""

    name: str  # on the command line
    label: str  # in the paper's source
    caption: str
    panels: tuple[tuple[str, str], ...]  # title and override of each, from left to right
    note: Note = "classes"  # statistic below each panel


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
    "stability": FigureSpec(
        name="stability",
        label="lem:lyap_stable",
        caption="State of a trained layer far beyond its integration period, relative to time 0.",
        panels=tuple(map(_flow, ("heat", "grand", "mean_curvature", "beltrami", "p_laplacian"))),
    ),
}


def panel_overrides(figure: FigureSpec, given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """All overrides of each panel, by its title, from those the user gave.

    `flow=a,b,c` replaces the panels of a figure that shows one per flow. An option that differs
    between the panels is refused.
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


def _key(override: str) -> str:
    return override.split("=", 1)[0].lstrip("+~")
