"""Axes of the paper's tables: columns of a frame in the paper's terms, and their labels."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.records.record import CLEAN, Record

DATASETS = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "pubmed": "PubMed",
    "coauthor": "Coauthor",
    "flickr": "Flickr",
    "amazon_computer": "Amazon Computer",
    "citeseer_words": "Citeseer (words)",
    "planetoid_citeseer": "Citeseer (Planetoid)",
}

STAND_INS: dict[str, str] = read_yaml(CONFIG_DIR / "hydra" / "sweeper" / "grid.yaml")["stand_ins"]
"""Dataset of the paper -> the same graph, labels and split with other features."""

WORST = "worst"
"""Value in place of an attack: the one that hurt a model most."""

TEST_GRAPHS = {
    "clean": "clean",
    "speit": "SPEIT",
    "tdgia": "TDGIA",
    "pgd_modification": "PGD",
    WORST: "worst case",
}

MODELS = {
    "heat": "Heat",
    "heat_plus": "Heat⁺",
    "grand": "GRAND/BLEND",
    "mean_curvature": "Mean Curvature",
    "beltrami": "Beltrami",
    "beltrami_no_lipschitz": "Beltrami w/o Lips.",
    "p_laplacian_p3": "p-Laplacian (p=3)",
    "p_laplacian_p4": "p-Laplacian (p=4)",
    "beltrami_guard": "BeltramiGuard",
    "robust_gcn": "RobustGCN",
    "gnn_guard": "GNNGuard",
    "gcn_svd": "GCNSVD",
    "gat": "GAT",
    "graph_sage": "GraphSAGE",
    "gin": "GIN",
    "appnp": "APPNP",
    "mlp": "MLP",
    "gcn": "GCN",
}
"""Labels of models and flows; the paper has no MLP and no GCN."""

_LIPSCHITZ = {"lipschitz": True}
_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "grand": {"grand": _LIPSCHITZ},
    "mean_curvature": {"mean_curvature": _LIPSCHITZ},
    "beltrami": {"beltrami": _LIPSCHITZ, "beltrami_no_lipschitz": {"lipschitz": False}},
    "p_laplacian": {f"p_laplacian_p{p}": _LIPSCHITZ | {"p": p} for p in (3, 4)},
}
"""Flow -> its names in the tables, and the options of each; with others, it has no name."""

SOLVERS = {
    "implicit_adams": "Implicit Adams",
    "explicit_adams": "Explicit Adams",
    "dopri5": "Dopri5",
}

NAMED: Mapping[str, Mapping[str, str]] = {
    "dataset": DATASETS,
    "attack": TEST_GRAPHS,
    "model": MODELS,
    "solver": SOLVERS,
    "limit": {"max_injected_nodes": "max # Nodes", "max_edges_per_injected_node": "max # Edges"},
    "step": {"aggregation": "one step"},
    "injected": {"clean": "Clean"},
    "tau": {"-": "-"},
}
"""Axis -> its values, and the label of each."""

_NUMBERED = {
    "tau": "τ={}",
    "layers": "{}",
    "injected": "{0}/{0}",
    "modified": "{0}% / {0}%",
    "epsilon": "ε={}",
}
"""Axis of numbers -> the label of a value without a label of its own."""

AXES = (
    *("dataset", "attack", "model", "solver", "tau", "step"),
    *("layers", "injected", "modified", "epsilon", "limit"),
)

OPTIONS: Mapping[str, list[str]] = {
    "model": ["flow", "flow.lipschitz", "flow.p"],
    "tau": ["solver.num_steps"],
    "layers": ["model.num_layers"],
    "injected": ["max_injected_nodes", "max_edges_per_injected_node"],
    "modified": ["node_ratio", "edge_ratio"],
    "epsilon": ["epsilon"],
}
"""Axis -> the options that set it, besides the one of its name; limits without `budget.`."""


def with_axes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `frame` with a column per axis, as text; missing where it has no value."""
    parts = rows[["model", "attack", "solver", "timing", "record"]]
    axes = [_axes(*of_row) for of_row in parts.itertuples(index=False, name=None)]
    columns = [axis for axis in AXES if axis not in ("dataset", "attack", "limit")]
    columns_of = {axis: [of_row.get(axis) for of_row in axes] for axis in columns}
    return rows.assign(**pd.DataFrame(columns_of, index=rows.index, dtype=object))


def _axes(
    model: str, attack: Any, solver: Any, timing: Any, record: Record
) -> dict[str, str | None]:
    options, limits = record.config.model, record.config.budget
    axes: dict[str, str | None] = {"model": _named(model, options.get("flow")), "solver": solver}
    steps, layers = (options.get("solver") or {}).get("num_steps"), options.get("num_layers")
    # A solver that chooses its own steps has a number of them that it does not read.
    axes["tau"] = "-" if solver == "dopri5" else None if steps is None else str(steps)
    axes["layers"] = None if layers is None else str(layers)
    if isinstance(timing, Mapping) and timing.get("step") == "aggregation":
        axes["step"] = "aggregation"
    # As configured, since a failed run has no other budget.
    nodes, edges = (limits.get(key) for key in OPTIONS["injected"])
    axes["injected"] = str(nodes) if nodes == edges else None
    ratio, epsilon = limits.get("node_ratio"), limits.get("epsilon")
    if isinstance(ratio, int | float) and ratio == limits.get("edge_ratio"):
        axes["modified"] = f"{100 * ratio:g}"
    axes["epsilon"] = f"{epsilon:g}" if isinstance(epsilon, int | float) else None
    return axes | ({"injected": CLEAN} if attack == CLEAN else {})


def _named(model: str, flow: Any) -> str | None:
    """Name a model as the tables do; `None` for a flow with options that no table has.

    Under the flow's name, it would pass for the flow itself.
    """
    if model not in _SETTINGS or not isinstance(flow, Mapping):
        return model
    fits = (
        name
        for name, wanted in _SETTINGS[model].items()
        if all(flow.get(option) == value for option, value in wanted.items())
    )
    return next(fits, None)


def label_of(axis: str, value: str) -> str:
    """Return the label of a value; the value itself if the paper has none."""
    return NAMED.get(axis, {}).get(value) or _NUMBERED.get(axis, "{}").format(value)


def check_axes(axes: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` for an unknown axis, or an unknown value of an axis of names."""
    for axis, value in axes.items():
        named = NAMED.get(check_choice("table.axis", axis, AXES), {})
        if axis not in _NUMBERED:
            check_choice(f"table.{axis}", str(value), named)
