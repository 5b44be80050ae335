"""Axes of the paper's tables: label, published numbers and records of each value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR


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
    "planetoid_citeseer": "Planetoid Citeseer",
}

STAND_INS: dict[str, str] = dict(
    OmegaConf.load(CONFIG_DIR / "hydra" / "sweeper" / "grid.yaml").stand_ins
)
"""Dataset of the paper -> another graph of that name, of which nothing is published."""

GRAPHS = {"clean": "clean", "speit": "SPEIT", "tdgia": "TDGIA", "pgd_modification": "PGD"}
"""Test graphs: the clean one, and an attack's by the name of the attack."""

WORST = "worst"
"""In place of an attack: whichever hurt a model most."""

TEST_GRAPHS = GRAPHS | {WORST: "worst case"}


def _pde(flow: str, **options: Any) -> dict[str, Any]:
    own = {f"config.model.flow.{key}": value for key, value in options.items()}
    return {"model": "graph_pde", "flow": flow} | own


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
"""Name of a model -> its label, and how its records say so; the paper has no MLP and no GCN."""

SOLVERS = {
    "implicit_adams": "Implicit Adam",
    "explicit_adams": "Explicit Adam",
    "dopri5": "Dopri5",
}

STEPS = {"aggregation": "one aggregation step"}
"""Steps that are timed beside a diffusion."""

LIMITS = {
    "max_injected_nodes": "max # Nodes",
    "max_edges_per_injected_node": "max # Edges",
}


def _named(labels: Mapping[str, str], column: str, *, recorded: bool = False) -> dict[str, Choice]:
    """Choices of an axis whose names stand in one column of `printed.csv`, and in records."""
    return {
        name: Choice(name, label, {column: name}, {column: name} if recorded else {})
        for name, label in labels.items()
    }


NAMED: Mapping[str, Mapping[str, Choice]] = {
    "dataset": _named(DATASETS, "dataset", recorded=True),
    "attack": _named(TEST_GRAPHS, "attack"),
    "model": {
        name: Choice(name, label, {"model": name}, record)
        for name, (label, record) in MODELS.items()
    },
    "solver": {
        name: Choice(name, label, {"parameter": name}, {"solver": name})
        for name, label in SOLVERS.items()
    },
    "step": {name: Choice(name, label, {"parameter": label}) for name, label in STEPS.items()},
    "limit": _named(LIMITS, "metric"),
}
"""Axes whose values are names."""


def _tau(n: str) -> Choice:
    if n == "-":
        return Choice(n, n)
    record = {"config.model.solver.num_steps": int(n)}
    return Choice(n, f"τ={n}", {"parameter": f"tau={n}"}, record)


def _layers(n: str) -> Choice:
    return Choice(n, n, {"parameter": f"layers={n}"}, {"config.model.num_layers": int(n)})


def _injected(n: str) -> Choice:
    if n == "clean":
        return Choice(n, "Clean", {"attack": n})
    limits = {f"config.budget.{key}": int(n) for key in LIMITS}
    return Choice(n, f"{n}/{n}", {"budget_nodes": n, "budget_edges": n}, limits)


def _modified(n: str) -> Choice:
    ratios = {f"config.budget.{key}": int(n) / 100 for key in ("node_ratio", "edge_ratio")}
    return Choice(n, f"{n}% / {n}%", {"budget_nodes": f"{n}%", "budget_edges": f"{n}%"}, ratios)


def _epsilon(x: str) -> Choice:
    return Choice(x, f"ε={x}", {"parameter": f"eps={x}"}, {"config.budget.epsilon": float(x)})


NUMBERED: Mapping[str, Callable[[str], Choice]] = {
    "tau": _tau,
    "layers": _layers,
    "injected": _injected,
    "modified": _modified,
    "epsilon": _epsilon,
}
"""Axes whose values are numbers."""

AXES = (
    *("dataset", "attack", "model", "solver", "tau", "step"),
    *("layers", "injected", "modified", "epsilon", "limit"),
)
"""All axes, in the order of the columns of the tables' CSV."""


def choice(axis: str, value: str) -> Choice:
    """Meaning of a value of a layout's axis; an unknown axis or name is a `ConfigError`."""
    if check_choice("table.axis", axis, AXES) in NUMBERED:
        return NUMBERED[axis](value)
    return NAMED[axis][check_choice(f"table.{axis}", value, NAMED[axis])]


def label_of(axis: str, name: str) -> str:
    """Name of a dataset, attack or model in tables and charts.

    What no table of the paper has goes by its own name.
    """
    return NAMED[axis][name].label if name in NAMED[axis] else name
