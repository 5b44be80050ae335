"""`robust-diffusion figure flows|lipschitz|stability|layer`: the paper's figures, and one more."""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from robust_diffusion.errors import ConfigError
from robust_diffusion.results.markdown import print_table
from robust_diffusion.system.files import write_whole

DEFAULT_DIRECTORY = "outputs/figures"

LAYER_DIAGRAM = Path(__file__).parents[1] / "figures" / "gode_layer.svg"
"""Diagram of one layer of a graph neural PDE, fig. (gode_layer) of arXiv:2209.07754."""

NEEDED = {"matplotlib": "matplotlib", "sklearn": "scikit-learn"}

STATISTICS = {
    "intra_edges": "edges within",
    "inter_edges": "between",
    "intra_mean": "mean within",
    "inter_mean": "mean between",
    "inter_share": "share between",
    "inter_preference": "preference between",
    "inter_above_intra": "P(between > within)",
    "evenness": "evenness",
}
"""Columns of the printed statistics."""


LARGEST = ("norm", "overshoot", "growth", "shift")
"""Quantities of `figure stability` whose largest value over time is printed."""


def run_figure_command(arguments: Sequence[str]) -> None:
    """Draw one of the figures, and print the numbers behind it."""
    chosen = _parser().parse_intermixed_args(arguments)
    if chosen.name == "layer":
        if chosen.overrides:
            raise ConfigError(f"{chosen.overrides[0]}: figure layer takes no option; drop it")
        layer = Path(chosen.directory) / LAYER_DIAGRAM.name
        diagram = LAYER_DIAGRAM.read_text(encoding="utf-8")
        sys.stdout.write(f"{write_whole(layer, diagram, option='--directory')}\n")
    else:
        _draw(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion figure",
        description="Draw a figure of the paper as PDF, PNG and SVG, with a JSON of what shaped "
        "it. Options are those of a run: dataset=cora fidelity=released seed=1 scale=smoke.",
    )
    parser.add_argument(
        "name",
        choices=["flows", "lipschitz", "stability", "layer"],
        help="flows: one panel per flow (flow=a,b,c); lipschitz: Beltrami without and with "
        "spectral normalisation; stability: perturbations and energy of each flow up to t = 1000; "
        "layer: the diagram of a layer",
    )
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="options of a run"
    )
    parser.add_argument(
        "--directory", default=DEFAULT_DIRECTORY, help=f"(default: {DEFAULT_DIRECTORY})"
    )
    parser.add_argument(
        "--layer",
        type=int,
        help="which layer (default: -2, the last hidden one; for stability 0, the first)",
    )
    parser.add_argument("--perplexity", type=float, default=30.0, help="of t-SNE (default: 30)")
    parser.add_argument(
        "--max-nodes", type=int, default=3000, help="most nodes drawn (default: 3000)"
    )
    parser.add_argument(
        "--weights",
        choices=["attention", "carried"],
        default="attention",
        help="what edges are drawn by: attention A(Z), or the weight with which the flow carries "
        "features (default: attention)",
    )
    return parser


def _draw(chosen: argparse.Namespace) -> None:
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"figure {chosen.name}: needs {' and '.join(missing)}; "
            "pip install 'robust-diffusion[report]'"
        )
    # Imported late, since neither is needed for anything else.
    from robust_diffusion.paper.figures.build import Options, build_figure
    from robust_diffusion.paper.figures.files import write_figure
    from robust_diffusion.paper.figures.observe import LAST_HIDDEN
    from robust_diffusion.paper.figures.spec import FIGURES
    from robust_diffusion.paper.figures.stability import build_stability

    # Lightning's banners on devices and tips; its warnings stay.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    spec = FIGURES[chosen.name]
    if chosen.name == "stability":
        built = build_stability(spec, chosen.overrides, layer=chosen.layer or 0)
    else:
        layer = LAST_HIDDEN if chosen.layer is None else chosen.layer
        options = Options(layer, chosen.perplexity, chosen.max_nodes, chosen.weights)
        built = build_figure(spec, chosen.overrides, options)
    written = write_figure(built.figure, chosen.directory, built.stem, built.description)
    about = built.description
    title = (
        f"Figure ({about['label']}), arXiv:2209.07754; {about['dataset']}, "
        f"fidelity={about['fidelity']}, seed {about['seed']}"
    )
    if about["scale"] == "smoke":
        title += "; SMOKE RUN, says nothing about the paper"
    if chosen.name == "stability":
        print_table(title, _ends(about), ["flow"])
    else:
        print_table(title, _statistics(about), ["panel", "weight"])
    sys.stdout.write("".join(f"{path}\n" for path in written))


def _statistics(description: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {"panel": panel["title"], "weight": kind}
        | {name: _text(found[key]) for key, name in STATISTICS.items()}
        for panel in description["panels"]
        for kind, found in panel["statistics"].items()
    )


def _ends(description: Mapping[str, Any]) -> pd.DataFrame:
    """The last state of each flow, the most that a quantity was, and what NFE tells."""
    return pd.DataFrame(
        {
            "flow": panel["title"],
            "t": f"{panel['rows'][-1]['t']:g}",
            "energy": f"{panel['rows'][-1]['energy']:.2g}",
            **{
                f"largest {key}": f"{max(row[key] for row in panel['rows']):.3g}" for key in LARGEST
            },
            **{f"AUC {name}": f"{of['auc']:.2f}" for name, of in panel["detection"].items()},
            "NFE clean": f"{list(panel['detection'].values())[-1]['clean']:.0f}",
            "attacked": f"{list(panel['detection'].values())[-1]['attacked']:.0f}",
        }
        for panel in description["panels"]
    )


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
