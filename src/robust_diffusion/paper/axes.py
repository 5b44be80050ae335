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


def _tau(value: str) -> Choice:
    if value == "-":
        return Choice("-")
    return Choice(
        f"τ={value}", {"parameter": f"tau={value}"}, {"config.model.solver.num_steps": int(value)}
    )


def _layers(value: str) -> Choice:
    return Choice(value, {"parameter": f"layers={value}"}, {"config.model.num_layers": int(value)})


def _injected(value: str) -> Choice:
    if value == "clean":
        return Choice("Clean", {"attack": "clean"})
    limits = {f"config.budget.{key}": int(value) for key in LIMITS}
    return Choice(f"{value}/{value}", {"budget_nodes": value, "budget_edges": value}, limits)


def _modified(value: str) -> Choice:
    ratios = {f"config.budget.{key}": int(value) / 100 for key in ("node_ratio", "edge_ratio")}
    printed = {"budget_nodes": f"{value}%", "budget_edges": f"{value}%"}
    return Choice(f"{value}% / {value}%", printed, ratios)


def _epsilon(value: str) -> Choice:
    return Choice(
        f"ε={value}", {"parameter": f"eps={value}"}, {"config.budget.epsilon": float(value)}
    )


AXES: dict[str, tuple[Callable[[str], Choice], Mapping[str, Any] | None]] = {
    "dataset": (
        lambda name: Choice(DATASETS[name], {"dataset": name}, {"dataset": name}),
        DATASETS,
    ),
    "attack": (lambda name: Choice(TEST_GRAPHS[name], {"attack": name}), TEST_GRAPHS),
    "model": (lambda name: Choice(MODELS[name][0], {"model": name}, MODELS[name][1]), MODELS),
    "solver": (lambda name: Choice(SOLVERS[name], {"parameter": name}, {"solver": name}), SOLVERS),
    "tau": (_tau, None),
    "step": (lambda name: Choice(STEPS[name], {"parameter": STEPS[name]}), STEPS),
    "layers": (_layers, None),
    "injected": (_injected, None),
    "modified": (_modified, None),
    "epsilon": (_epsilon, None),
    "limit": (lambda name: Choice(LIMITS[name], {"metric": name}), LIMITS),
}
"""Per axis, what a value stands for, and the values that there are where they are names."""


def choice(axis: str, value: str) -> Choice:
    """Meaning of a value of a layout's axis; an unknown axis or name is a `ConfigError`."""
    check_choice("table.axis", axis, AXES)
    read, known = AXES[axis]
    if known is not None:
        check_choice(f"table.{axis}", value, known)
    return read(value)


def label_of(axis: str, name: str) -> str:
    """Name of a dataset, attack or model in tables and charts.

    What no table of the paper has goes by its own name.
    """
    read, known = AXES[axis]
    return read(name).label if name in (known or {}) else name
