"""Axes of the paper's tables: label, published numbers and records of each value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR


@dataclass(frozen=True)
class Choice:
    """One value of one axis of a table.

    Args:
        label: What the table calls it.
        printed: Column of `printed.csv` -> text.
        record: Dotted path in a record -> value.
    """

    label: str
    printed: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


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
}
"""The paper's name of a model -> its label, and how its records say so."""

OTHERS = {"mlp": "MLP", "gcn": "GCN"}
"""Labels of what the paper's tables do not show."""

SOLVERS = {
    "implicit_adams": "Implicit Adam",
    "explicit_adams": "Explicit Adam",
    "dopri5": "Dopri5",
}

STEPS = {"aggregation": "one aggregation step"}
"""What else is timed than a diffusion."""

LIMITS = {
    "max_injected_nodes": "max # Nodes",
    "max_edges_per_injected_node": "max # Edges",
}


def _dataset(value: str) -> Choice:
    return Choice(DATASETS[value], {"dataset": value}, {"dataset": value})


def _attack(value: str) -> Choice:
    return Choice(GRAPHS[value], {"attack": value})


def _model(value: str) -> Choice:
    label, record = MODELS[value]
    return Choice(label, {"model": value}, record)


def _solver(value: str) -> Choice:
    return Choice(SOLVERS[value], {"parameter": value}, {"solver": value})


def _tau(value: str) -> Choice:
    if value == "-":
        return Choice("-")
    return Choice(
        f"τ={value}", {"parameter": f"tau={value}"}, {"config.model.solver.num_steps": int(value)}
    )


def _step(value: str) -> Choice:
    return Choice(STEPS[value], {"parameter": STEPS[value]})


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


def _limit(value: str) -> Choice:
    return Choice(LIMITS[value], {"metric": value})


AXES: dict[str, tuple[Callable[[str], Choice], Mapping[str, Any] | None]] = {
    "dataset": (_dataset, DATASETS),
    "attack": (_attack, GRAPHS),
    "model": (_model, MODELS),
    "solver": (_solver, SOLVERS),
    "tau": (_tau, None),
    "step": (_step, STEPS),
    "layers": (_layers, None),
    "injected": (_injected, None),
    "modified": (_modified, None),
    "epsilon": (_epsilon, None),
    "limit": (_limit, LIMITS),
}
"""Per axis, what a value stands for, and the values that there are where they are names."""


def choice(axis: str, value: str) -> Choice:
    """What a value of an axis stands for.

    Args:
        axis: Its name in a layout.
        value: One of its values.

    Raises:
        ConfigError: An unknown axis, or an unknown name on it.
    """
    check_choice("table.axis", axis, AXES)
    read, known = AXES[axis]
    if known is not None:
        check_choice(f"table.{axis}", value, known)
    return read(value)


def label_of(axis: str, name: str) -> str:
    """What tables and charts call it; what no table of the paper has goes by its own name.

    Args:
        axis: dataset, attack or model.
        name: One of its values.
    """
    read, known = AXES[axis]
    return read(name).label if name in (known or {}) else OTHERS.get(name, name)
