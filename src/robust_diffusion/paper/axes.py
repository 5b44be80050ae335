"""Axes of the paper's tables: label, published numbers and records of each value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR, read_yaml


@dataclass(frozen=True)
class Choice:
    """One value of one axis of a table."""

    value: str
    label: str  # shown in the table
    printed: Mapping[str, str] = field(default_factory=dict)  # column of `printed.csv` -> text
    record: Mapping[str, Any] = field(default_factory=dict)  # dotted path in a record -> value


DATASETS = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "pubmed": "PubMed",
    "coauthor": "Coauthor",
    "flickr": "Flickr",
    "amazon_computer": "Amazon Computer",
    "citeseer_words": "Citeseer (words)",
}

STAND_INS: dict[str, str] = read_yaml(CONFIG_DIR / "hydra" / "sweeper" / "grid.yaml")["stand_ins"]
"""Dataset of the paper -> the same graph, labels and split with other features."""

FORMER_STAND_INS = frozenset(["planetoid_citeseer"])
"""Datasets that a table shows only if it has no run on a stand-in."""

_PRINTED_AS = {stand_in: dataset for dataset, stand_in in STAND_INS.items()}

_GRAPHS = {"clean": "clean", "speit": "SPEIT", "tdgia": "TDGIA", "pgd_modification": "PGD"}
"""Test graphs: the clean one, and an attack's by the name of the attack."""

WORST = "worst"
"""Value in place of an attack: the one that hurt a model most."""

TEST_GRAPHS = _GRAPHS | {WORST: "worst case"}


def _pde(flow: str, **values: Any) -> dict[str, Any]:
    settings = {f"config.model.flow.{key}": value for key, value in values.items()}
    return {"model": "graph_pde", "flow": flow} | settings


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "heat": ("Heat", _pde("heat")),
    "heat_plus": ("Heat⁺", _pde("heat_plus")),
    "grand": ("GRAND/BLEND", _pde("grand", spectral_norm=True)),
    "mean_curvature": ("Mean Curvature", _pde("mean_curvature", spectral_norm=True)),
    "beltrami": ("Beltrami", _pde("beltrami", spectral_norm=True)),
    "beltrami_no_lipschitz": ("Beltrami w/o Lips.", _pde("beltrami", spectral_norm=False)),
    "p_laplacian_p3": ("p-Laplacian (p=3)", _pde("p_laplacian", spectral_norm=True, p=3)),
    "p_laplacian_p4": ("p-Laplacian (p=4)", _pde("p_laplacian", spectral_norm=True, p=4)),
    "beltrami_guard": ("BeltramiGuard", {"model": "beltrami_guard"}),
    "robust_gcn": ("RobustGCN", {"model": "robust_gcn"}),
    "gnn_guard": ("GNNGuard", {"model": "gnn_guard"}),
    "gcn_svd": ("GCNSVD", {"model": "gcn_svd"}),
    "gat": ("GAT", {"model": "gat"}),
    "graph_sage": ("GraphSAGE", {"model": "graph_sage"}),
    "gin": ("GIN", {"model": "gin"}),
    "appnp": ("APPNP", {"model": "appnp"}),
    "mlp": ("MLP", {"model": "mlp"}),
    "gcn": ("GCN", {"model": "gcn"}),
}
"""Name of a model -> its label, and its values in a record; the paper has no MLP and no GCN."""

SOLVERS = {"implicit_adams": "Implicit Adam", "explicit_adams": "Explicit Adam", "dopri5": "Dopri5"}

STEPS = {"aggregation": "one aggregation step"}
"""Steps that are timed beside a diffusion."""

LIMITS = {"max_injected_nodes": "max # Nodes", "max_edges_per_injected_node": "max # Edges"}

NAMED: Mapping[str, Mapping[str, Choice]] = {
    "dataset": {
        n: Choice(n, t, {"dataset": _PRINTED_AS.get(n, n)}, {"dataset": n})
        for n, t in DATASETS.items()
    },
    "attack": {n: Choice(n, t, {"attack": n}) for n, t in TEST_GRAPHS.items()},
    "model": {n: Choice(n, t, {"model": n}, record) for n, (t, record) in MODELS.items()},
    "solver": {n: Choice(n, t, {"parameter": n}, {"solver": n}) for n, t in SOLVERS.items()},
    "step": {n: Choice(n, t, {"parameter": t}) for n, t in STEPS.items()},
    "limit": {n: Choice(n, t, {"metric": n}) for n, t in LIMITS.items()},
    "tau": {"-": Choice("-", "-")},
    "injected": {"clean": Choice("clean", "Clean", {"attack": "clean"})},
}
"""Axes whose values are names, and named values of the numbered axes."""

NUMBERED: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, float]]] = {
    "tau": ("τ={}", {"parameter": "tau={}"}, {"model.solver.num_steps": 1}),
    "layers": ("{}", {"parameter": "layers={}"}, {"model.num_layers": 1}),
    "injected": (
        "{0}/{0}",
        {"budget_nodes": "{}", "budget_edges": "{}"},
        {f"budget.{limit}": 1 for limit in LIMITS},
    ),
    "modified": (
        "{0}% / {0}%",
        {"budget_nodes": "{}%", "budget_edges": "{}%"},
        {"budget.node_ratio": 100, "budget.edge_ratio": 100},
    ),
    "epsilon": ("ε={}", {"parameter": "eps={}"}, {"budget.epsilon": 1}),
}
"""Axes whose values are numbers: label, columns of `printed.csv`, unit of paths in `config`."""

AXES = (
    *("dataset", "attack", "model", "solver", "tau", "step"),
    *("layers", "injected", "modified", "epsilon", "limit"),
)
"""All axes, in the order of the columns of the tables' CSV."""


@cache
def choice(axis: str, value: str) -> Choice:
    """Look up a value of a layout's axis; an unknown axis or name is a `ConfigError`."""
    named = NAMED.get(check_choice("table.axis", axis, AXES), {})
    if axis not in NUMBERED or value in named:
        return named[check_choice(f"table.{axis}", value, named)]
    label, columns, paths = NUMBERED[axis]
    printed = {column: text.format(value) for column, text in columns.items()}
    record = {f"config.{path}": float(value) / unit for path, unit in paths.items()}
    return Choice(value, label.format(value), printed, record)


def label_of(axis: str, name: str) -> str:
    """Return the label of a dataset, attack or model; the name itself if the paper has none."""
    return NAMED[axis][name].label if name in NAMED[axis] else name
