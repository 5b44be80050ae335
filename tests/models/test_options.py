"""Every hyper-parameter of the baselines and defenders does something, or says what is wrong."""

import inspect
from functools import partial

import pytest
import torch
from torch import nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Beltrami, Grand
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import (
    APPNP,
    GAT,
    GCN,
    GCNSVD,
    GIN,
    MLP,
    BeltramiGuard,
    GNNGuard,
    GraphPDE,
    GraphSAGE,
    Guard,
    Rewiring,
    RobustGCN,
)
from tests.graphs import random_signal, without_type_checks
from tests.models.small import build_model, edges

FLOW = partial(Beltrami, heads=2, attention_channels=6)
DIFFUSION = {"flow": FLOW, "solver": Solver("euler", num_steps=1)}
MODELS = {
    "appnp": APPNP,
    "beltrami_guard": partial(BeltramiGuard, **DIFFUSION),
    "gat": GAT,
    "gcn": GCN,
    "gcn_svd": partial(GCNSVD, rank=3),
    "gin": GIN,
    "gnn_guard": GNNGuard,
    "graph_pde": partial(GraphPDE, **DIFFUSION),
    "graph_sage": GraphSAGE,
    "mlp": MLP,
    "robust_gcn": RobustGCN,
}
EVERYWHERE = [
    ("hidden_channels", 7),
    ("hidden_channels", [4, 5]),
    ("num_layers", 2),
    ("layer_norm", "other"),
]
OWN = {
    "appnp": [("num_iterations", 4), ("teleport", 0.2), ("variant", "grb")],
    "beltrami_guard": [
        ("threshold", 0.7),
        ("reweight", False),
        ("flow", partial(Beltrami, heads=3, attention_channels=6)),
        ("solver", Solver("euler", num_steps=2)),
    ],
    "gat": [("heads", 2)],
    "gcn_svd": [("rank", 2)],
    "gin": [("batch_norm", False)],
    "gnn_guard": [("threshold", 0.7)],
    "graph_pde": [
        ("guard", Guard()),
        ("flow", partial(Grand, heads=2, attention_channels=6)),
        ("flow", partial(FLOW, t_end=0.5)),
        ("flow", partial(FLOW, t_end=0.0)),
        ("solver", Solver("euler", num_steps=2)),
        ("solver", Solver("midpoint", num_steps=1)),
    ],
    "graph_sage": [("variant", "grb")],
    "robust_gcn": [("sample_at_test", True)],
}
IN_TRAINING = {
    "appnp": [("edge_dropout", 0.4)],
    "beltrami_guard": [("rewiring", Rewiring())],
    "graph_pde": [
        ("rewiring", Rewiring(*ratios))
        for ratios in ((0.8, 0.0, 0.0), (1.0, 0.4, 0.0), (1.0, 0.0, 0.2))
    ],
}
SWITCHED = ("beltrami_guard", "gcn_svd", "gnn_guard")
BAD = [  # of each kind; tests/test_values.py draws odd values of every key
    ("appnp", "num_iterations", -1),
    ("appnp", "variant", "pagerank"),
    ("beltrami_guard", "threshold", 2.0),
    ("gat", "heads", 1.5),
    ("gcn_svd", "rank", None),
    ("gnn_guard", "gradient", "true"),
    ("graph_pde", "dropout", 1.0),
    *[("gcn", "dropout", p) for p in (-0.1, 1.5)],
    *[("robust_gcn", "num_layers", n) for n in (0, None)],
    *[("gin", "hidden_channels", h) for h in (0, [4], [8, 1.5], True, "64", None)],
]


def target(model: str) -> type[nn.Module]:
    return getattr(MODELS[model], "func", MODELS[model])


def arguments(model: str) -> set[str]:
    return set(inspect.signature(target(model)).parameters) - {"in_channels", "out_channels"}


def table(own: dict[str, list[tuple[str, object]]], everywhere: list[tuple[str, object]]) -> list:
    return [
        (model, key, value)
        for model in MODELS
        for key, value in (*everywhere, *own.get(model, []))
        if key in arguments(model)
    ]


@pytest.mark.parametrize(("model", "key", "value"), table(OWN, EVERYWHERE))
def test_it_changes_the_logits(model: str, key: str, value: object) -> None:
    if value == "other":
        value = not inspect.signature(target(model)).parameters[key].default
    given = (random_signal(), edges()[0])
    default, changed = build_model(MODELS[model]), build_model(MODELS[model], **{key: value})
    assert (default(*given) - changed(*given)).abs().max() > 1e-6


@pytest.mark.parametrize(("model", "key", "value"), table(IN_TRAINING, [("dropout", 0.7)]))
def test_it_changes_training_only(model: str, key: str, value: object) -> None:
    given = (random_signal(), edges()[0])
    off = {key: 0.0 for key in ("dropout", "edge_dropout") if key in arguments(model)}
    logits: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    for options in (off, off | {key: value}):
        built = build_model(MODELS[model], **options)
        for training in (False, True):
            torch.manual_seed(3)
            logits[training].append(built.train(training)(*given))
    assert torch.equal(*logits[False])
    assert (logits[True][0] - logits[True][1]).abs().max() > 1e-6


@pytest.mark.parametrize("model", MODELS)
def test_every_argument_is_tried(model: str) -> None:
    tried = {key for name, key, _ in table(OWN, EVERYWHERE) if name == model}
    tried |= {key for name, key, _ in table(IN_TRAINING, [("dropout", 0)]) if name == model}
    if model in SWITCHED:  # whose own tests compare the gradients
        tried.add("gradient")
    if model == "gcn_svd":  # whose own tests have a graph on which it matters
        tried.add("negative_degree")
    assert tried == arguments(model)


@pytest.mark.parametrize(("model", "key", "value"), BAD)
def test_a_bad_value_names_its_key(model: str, key: str, value: object) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"model\.{key}="):
        build_model(MODELS[model], **{key: value})
