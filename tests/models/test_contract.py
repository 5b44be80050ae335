"""Properties of every model, as the command line builds it, small and in double precision.

New files of conf/model and conf/flow join by themselves, those of the tutorials, too.
"""

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion import flows, models
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.models.stack import takes_features
from robust_diffusion.operators import SparseFeatures, sparse_features
from robust_diffusion.system.lazy import typed_imports
from robust_diffusion.training import NodeClassification
from tests import oracles, tutorials
from tests.configs import composed
from tests.graphs import CHANNELS, CLUSTERS, clustered_edges, random_signal, without_type_checks

Case = tuple[str, ...]

CLASSES = 3
NODES = sum(CLUSTERS)
RANK = len(CLUSTERS)
SMALL = ["model.hidden_channels=8", "model.num_layers=2", "solver=rk4", "solver.num_steps=1"]
OF_ONE_MODEL = {"gcn_svd": [f"model.rank={RANK}"], "dragon": ["solver.num_steps=2"]}
OF_TWO_VARIANTS = {"appnp", "beltrami_guard", "gcn_svd", "gnn_guard", "graph_sage"}
OF_TWO_VARIANTS |= {"heat", "grand", "beltrami", "p_laplacian"}
"""Models, and of the flows one for each set of switches that `fidelity` turns."""


def options(group: str) -> list[str]:
    folders = (Path(CONFIG_DIR), tutorials.CONFIG_DIR)
    return sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))


def cases() -> list[Case]:
    """Every model, once for each flow or variant of the paper that it depends on."""
    found: list[Case] = []
    for model in options("model"):
        for flow in options("flow") if model == "graph_pde" else [""]:
            variants = options("fidelity") if (flow or model) in OF_TWO_VARIANTS else ["paper"]
            given = (f"model={model}", *([f"flow={flow}"] if flow else []))
            found += [(*given, f"fidelity={f}") for f in variants]
    return found


def name(case: Case) -> str:
    return "-".join(part.split("=")[1] for part in case)


def option(case: Case) -> str:
    return case[0].split("=")[1]


def but_for(*exceptions: str) -> Any:
    """All cases but those of some models or flows."""
    return pytest.mark.parametrize(
        "case",
        [c for c in cases() if {part.split("=")[1] for part in c}.isdisjoint(exceptions)],
        ids=name,
    )


every_case = but_for()
ALIKE = ("acmp", "blend", "dragon", "gread", "grand_matched", "graphcon", "hang_quad", "heat_plus")
ALIKE += ("learned", "mean_curvature", "p_laplacian", "uniform_modulation")
"""Flows that a model treats as it treats another one."""
one_of_each = but_for(*ALIKE)
EDGE_FREE = {"mlp"}


@cache
def recipe(case: Case) -> DictConfig:
    own = composed(case[0], tutorials.SEARCHED).model
    small = [o for o in SMALL if not o.startswith("model.") or o[6:].split("=")[0] in own]
    further = [o for part in case for o in OF_ONE_MODEL.get(part.split("=")[1], [])]
    model = composed(*case, *small, *further, tutorials.SEARCHED).model
    return OmegaConf.create(OmegaConf.to_container(model, resolve=True))


def build(case: Case, *, seed: int = 0, **changes: object) -> nn.Module:
    torch.manual_seed(seed)
    changes = {key: value for key, value in changes.items() if key in recipe(case)}
    return instantiate(recipe(case), **changes)(
        in_channels=CHANNELS, out_channels=CLASSES
    ).double().eval()  # fmt: skip


@pytest.fixture
def edge_index() -> Tensor:
    return clustered_edges()


@pytest.fixture
def x() -> Tensor:
    """Nodes of one cluster are alike, so that a guard keeps most of the edges."""
    cluster = torch.arange(RANK).repeat_interleave(torch.tensor(CLUSTERS))
    centre = random_signal(5, CHANNELS, RANK)[cluster]
    return 2 * centre + random_signal(0, CHANNELS, NODES)


@pytest.fixture
def weight(edge_index: Tensor) -> Tensor:
    return 0.5 + random_signal(1, 1, edge_index.size(1)).squeeze(1).sigmoid()


LABELS = torch.arange(NODES) % CLASSES


@every_case
def test_model_parameters(case: Case, x: Tensor, edge_index: Tensor, tmp_path: Path) -> None:
    module = NodeClassification(build(case), num_classes=CLASSES).train()
    parameters = dict(module.named_parameters())
    before = {key: parameter.detach().clone() for key, parameter in parameters.items()}
    optimizer = module.configure_optimizers()
    optimised = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert {id(parameter) for parameter in parameters.values()} == optimised
    for _ in range(2):  # what begins at zero holds back the gradients before it for a step
        optimizer.zero_grad()
        F.cross_entropy(module(Data(x=x, edge_index=edge_index)), LABELS).backward()
        optimizer.step()
    for key, parameter in parameters.items():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().sum() > 1e-10, key
        assert not torch.equal(parameter, before[key]), key
    torch.save(module.state_dict(), tmp_path / "best.ckpt")
    stored = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert set(parameters) <= set(stored)
    restored = NodeClassification(build(case, seed=1), num_classes=CLASSES)
    expected = module.eval()(Data(x=x, edge_index=edge_index))
    assert not torch.equal(restored(Data(x=x, edge_index=edge_index)), expected)
    restored.load_state_dict(stored)
    assert torch.equal(restored(Data(x=x, edge_index=edge_index)), expected)


@one_of_each
def test_model_evaluation(case: Case, x: Tensor, edge_index: Tensor, weight: Tensor) -> None:
    model, given = build(case), (x, edge_index, weight)
    copies = [tensor.clone() for tensor in given]
    first = model(*given)
    torch.manual_seed(77)
    assert torch.equal(model(*given), first)
    assert all(map(torch.equal, given, copies))
    assert first.shape == (NODES, CLASSES)
    assert first.std(0).min() > 1e-3
    ones = torch.ones_like(weight)
    torch.testing.assert_close(model(x, edge_index, ones), model(x, edge_index))
    assert model.float()(x.float(), edge_index).dtype == torch.float32


@one_of_each
def test_model_sparse_features(case: Case, edge_index: Tensor) -> None:
    words = torch.full((NODES, CHANNELS), -0.2, dtype=torch.float64)
    words[::3, 1] = torch.linspace(0.1, 0.9, len(words[::3]), dtype=torch.float64)
    prepared = sparse_features(words, max_share=0.5)
    assert isinstance(prepared, SparseFeatures)
    in_package = type(build(case)).__module__.startswith("robust_diffusion.")
    assert takes_features(build(case)) == in_package
    if not in_package:
        return
    found = []
    for features in (prepared, words):
        model = build(case).train()
        torch.manual_seed(4)
        F.cross_entropy(model(features, edge_index), LABELS).backward()
        gradients = [p.grad for p in model.parameters()]
        found.append([model.eval()(features, edge_index), *gradients])
    for sparse, dense in zip(*found, strict=True):
        torch.testing.assert_close(sparse, dense, rtol=1e-8, atol=1e-10)


@every_case
def test_model_equivariance(case: Case, x: Tensor, edge_index: Tensor, weight: Tensor) -> None:
    model, order = build(case), torch.randperm(NODES, generator=torch.Generator().manual_seed(0))
    renamed = order.argsort()[edge_index]
    for given in (None, weight):
        logits = model(x, edge_index, given)
        torch.testing.assert_close(model(x[order], renamed, given), logits[order])
    # Nor does the order of the edges matter.
    torch.testing.assert_close(model(x, edge_index.flip(1), weight.flip(0)), logits)


@every_case
def test_model_edges_of_weight_zero(
    case: Case, x: Tensor, edge_index: Tensor, weight: Tensor
) -> None:
    model, stays = build(case), torch.arange(weight.numel()) % 4 > 0
    zeroed = model(x, edge_index, weight * stays)
    removed = model(x, edge_index[:, stays], weight[stays])
    torch.testing.assert_close(zeroed, removed, rtol=0, atol=1e-10)
    if option(case) not in EDGE_FREE:
        assert (removed - model(x, edge_index, weight)).abs().max() > 1e-6


@one_of_each
def test_model_repeated_edges(case: Case, x: Tensor, edge_index: Tensor, weight: Tensor) -> None:
    model, twice = build(case), torch.arange(5)
    doubled = model(
        x, torch.cat([edge_index, edge_index[:, twice]], 1), torch.cat([weight, weight[twice]])
    )
    assert doubled.isfinite().all()
    # A modulated flow multiplies two softmaxes, and a guard takes the exponential of shares.
    modulated = any(isinstance(module, ModulatedFlow) for module in model.modules())
    if option(case) not in ("beltrami_guard", "gnn_guard") and not modulated:
        total = weight.index_add(0, twice, weight[twice])
        torch.testing.assert_close(doubled, model(x, edge_index, total))


@pytest.mark.parametrize("package", [models, flows])
def test_constructors_check_arguments(package: Any) -> None:
    classes = [getattr(package, name) for name in typed_imports(package.__name__)]
    key = "in_channels" if package is models else "channels"
    widths = {"hidden_channels": 4, "out_channels": 3} if package is models else {}
    checked = 0
    for cls in classes:
        is_abstract = not isinstance(cls, type) or inspect.isabstract(cls)
        if not is_abstract and next(iter(inspect.signature(cls).parameters), "") == key:
            with without_type_checks(), pytest.raises(ConfigError, match=f"{key}=x: must be"):
                cls("x", **widths)
            checked += 1
    assert checked > 10


def test_constructors_third_position() -> None:
    """PyG's is the number of layers, which would be taken for the number of classes."""
    for name in typed_imports(models.__name__):
        parameter = inspect.signature(getattr(models, name)).parameters.get("out_channels")
        assert parameter is None or parameter.kind is inspect.Parameter.KEYWORD_ONLY, name


NONE = torch.zeros(2, 0, dtype=torch.long)
# Isolated nodes, a pair, edges of one direction, duplicates.
ODD = torch.tensor([[1, 0, 2, 2, 2, 3, 3], [0, 1, 3, 4, 5, 6, 6]])
SELF_LOOPS = torch.tensor([[0, 7, 7, 3], [0, 7, 7, 3]])
DEGENERATE = {
    "no edges": (NONE, NODES),
    "one node": (NONE, 1),
    "odd edges": (ODD, NODES),
    "self-loops": (torch.cat([ODD, SELF_LOOPS], 1), NODES),
    "one node with a self-loop": (torch.zeros(2, 1, dtype=torch.long), 1),
}


@one_of_each
def test_model_degenerate_graphs(case: Case, x: Tensor) -> None:
    model = build(case).float()
    x[0] = 0
    for key, (edge_index, nodes) in DEGENERATE.items():
        for value in (1.0, 0.0):
            weight = torch.full((edge_index.size(1),), value)
            inputs = [x[:nodes].float().requires_grad_(), weight.requires_grad_()]
            logits = model(inputs[0], edge_index, weight)
            assert logits.shape == (nodes, CLASSES), key
            assert logits.isfinite().all(), (key, value)
            if "self-loop" in key or nodes == 1:
                continue
            for gradient in torch.autograd.grad(logits.square().sum(), inputs, allow_unused=True):
                assert gradient is None or gradient.isfinite().all(), (key, value)


# A truncated decomposition and the mean of a source are those of the whole graph.
@but_for("gcn_svd", "grand_pp", *ALIKE)
def test_model_isolated_node(case: Case, x: Tensor, edge_index: Tensor) -> None:
    model = build(case)
    alone = (edge_index != 0).all(0)
    whole = model(x, edge_index[:, alone])
    torch.testing.assert_close(whole[:1], model(x[:1], NONE))


@one_of_each
def test_model_exact_gradients(case: Case, x: Tensor, edge_index: Tensor, weight: Tensor) -> None:
    model, readout = build(case, gradient="exact"), random_signal(2, CLASSES, NODES)

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return (model(x, edge_index, weight) * readout).sum()

    given = {"x": x.requires_grad_(), "weight": weight.requires_grad_()}
    gradients = torch.autograd.grad(
        loss(**given), tuple(given.values()), allow_unused=True, materialize_grads=True
    )
    for (key, point), gradient in zip(given.items(), gradients, strict=True):
        assert (gradient == 0).all() == (option(case) in EDGE_FREE and key == "weight")
        for seed in range(2):
            direction = random_signal(seed, 1, point.numel()).view_as(point)
            with torch.no_grad():
                ahead, behind = (
                    loss(**given | {key: point + sign * 1e-6 * direction}).item()
                    for sign in (1, -1)
                )
            slope, difference = (gradient * direction).sum().item(), (ahead - behind) / 2e-6
            assert slope == pytest.approx(difference, rel=1e-5, abs=1e-6), key


@one_of_each
def test_model_degrees(case: Case, x: Tensor, edge_index: Tensor, weight: Tensor) -> None:
    model = build(case)
    takes = getattr(model, "normalizes_by_degree", False)
    assert takes == ("degree" in inspect.signature(model.forward).parameters)
    if takes:
        own = oracles.adjacency(edge_index, weight, NODES, self_loops=True).sum(1)
        expected = model(x, edge_index, weight)
        torch.testing.assert_close(model(x, edge_index, weight, own), expected)
        assert (model(x, edge_index, weight, 2 * own) - expected).abs().max() > 1e-6


@one_of_each
def test_model_mixed_precision(case: Case, x: Tensor, edge_index: Tensor) -> None:
    model, x = build(case).float().train(), x.float()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x, edge_index)
        loss = F.cross_entropy(logits, LABELS)
    loss.backward()
    assert loss.isfinite()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.isfinite().all() for g in gradients)
