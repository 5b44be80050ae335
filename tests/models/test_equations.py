"""Every baseline and defence against its formula on dense n x n matrices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion import models
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.flows import Beltrami, Heat
from robust_diffusion.integrators.solver import Solver
from tests import oracles
from tests.graphs import NODES, random_edges, random_signal
from tests.models.small import build_model, dense_of, dense_stack, edges

HEADS = 2
GUARDED = {
    "flow": partial(Beltrami, heads=HEADS, attention_channels=6, gradient_floor=0.1),
    "solver": Solver("euler", num_steps=1),
}
HEAT = {"flow": Heat, "solver": Solver("euler", num_steps=2), "num_layers": 2}

Formula = Callable[[Any, Tensor, Tensor], Tensor]


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    return x @ layer.weight.T + layer.bias


def mlp(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    return dense_stack(model, x, linear)


def gcn(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    matrix = oracles.normalized(dense)
    return dense_stack(model, x, lambda conv, x: matrix @ x @ conv.lin.weight.T + conv.bias)


def gat(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    def attend(conv: Any, x: Tensor) -> Tensor:
        matrices = conv.lin.weight.view(conv.heads, conv.out_channels, -1)
        ends = zip(matrices, conv.att_dst[0], conv.att_src[0], strict=True)
        each = [oracles.graph_attention(x, dense, *parts) for parts in ends]
        return torch.cat(each, 1) + conv.bias

    return dense_stack(model, x, attend, lambda x: torch.where(x > 0, x, 0.01 * x))


def gin(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    without_loops = dense - torch.eye(NODES, dtype=dense.dtype)

    def apply(layer: Any, x: Tensor) -> Tensor:
        if isinstance(layer, nn.Sequential):  # the classifier
            return linear(layer[3], linear(layer[0], x).relu())
        first, _, second, norm = layer.nn
        x = linear(first, (1 + layer.eps) * x + without_loops @ x).relu() @ second.weight.T
        x = x if second.bias is None else x + second.bias
        return oracles.batch_norm(x, norm) if isinstance(norm, nn.BatchNorm1d) else x

    return dense_stack(model, x, apply)


def sage(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    def pool(conv: Any, x: Tensor) -> Tensor:
        x = x / x.norm(dim=1, keepdim=True)
        projected = linear(conv.lin, x).relu()
        root = projected if conv.project_root else x
        pooled = oracles.root_mean_square_pool(projected, dense)
        return linear(conv.lin_l, pooled) + root @ conv.lin_r.weight.T

    return dense_stack(model, x, pool)


def appnp(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    local, matrix, alpha = mlp(model, x, dense), oracles.normalized(dense), model.teleport
    if model.variant == "original":
        return oracles.personalized_pagerank(local, matrix, alpha, model.num_iterations)
    lazy = (1 - alpha) * matrix + alpha * torch.eye(NODES, dtype=dense.dtype)
    return torch.linalg.matrix_power(lazy, model.num_iterations) @ local.relu()


def gpr_gnn(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    local, matrix = mlp(model, x, dense), oracles.normalized(dense)
    power = torch.linalg.matrix_power
    return sum(w * power(matrix, k) @ local for k, w in enumerate(model.weights))  # type: ignore[return-value]


def rung(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    z = local = mlp(model, x, dense)
    matrix, degree, s = oracles.normalized(dense), dense.sum(1, keepdim=True), model.smoothing
    for _ in range(model.num_iterations):
        distance = torch.cdist(z / degree.sqrt(), z / degree.sqrt()).clamp_min(0.01)
        trust = (1 / (2 * distance) - 1 / (2 * model.gamma)).clamp_min(0).fill_diagonal_(0)
        mean = (trust * dense).sum(1, keepdim=True) / degree
        z = (s * (trust * matrix) @ z + (1 - s) * local) / (s * mean + 1 - s)
    return z


def elastic_gnn(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    z = local = mlp(model, x, dense)
    gamma, root = 1 / (1 + model.lambda2), dense.sum(1, keepdim=True).sqrt()
    dual = torch.zeros(NODES, NODES, z.size(1), dtype=z.dtype)

    def pulled() -> Tensor:
        return torch.einsum("uv,uvc->uc", dense, dual) / root

    for _ in range(model.num_iterations):
        y = gamma * local + (1 - gamma) * oracles.normalized(dense) @ z
        ahead = (y - gamma * pulled()) / root
        dual = dual + (ahead[:, None] - ahead[None]) / (2 * gamma)
        norm = dual.abs() if model.penalty == "l1" else dual.norm(dim=2, keepdim=True)
        dual = dual * (model.lambda1 / norm.clamp_min(1e-12)).clamp_max(1)
        z = y - gamma * pulled()
    return z


def gcn_jaccard(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    counts = model.raw(x).clamp_min(0)
    both = torch.minimum(counts[:, None], counts[None]).sum(2)
    either = torch.maximum(counts[:, None], counts[None]).sum(2)
    kept = dense * ((both >= model.threshold * either) | torch.eye(NODES, dtype=torch.bool))
    assert (kept != dense).any()
    return gcn(model, x, kept)


def soft_median(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    unit = torch.eye(NODES, dtype=dense.dtype)
    scores = oracles.personalized_pagerank(
        unit, oracles.normalized(dense), model.teleport, model.num_iterations
    )
    lowest = scores.sort(1, descending=True).values[:, : model.neighbors][:, -1:]
    matrix = oracles.normalized(torch.where(scores >= lowest, scores, 0))

    def median(values: Tensor, weight: Tensor) -> Tensor:
        below = torch.stack([weight[values <= value].sum() for value in values])
        return values[below >= weight.sum() / 2].min()

    def aggregate(conv: Any, x: Tensor) -> Tensor:
        z = x @ conv.lin.weight.T
        middle = torch.stack([torch.stack([median(c, row) for c in z.T]) for row in matrix])
        distance = (middle[:, None] - z[None]).norm(dim=2)
        trust = matrix * torch.exp(-distance / z.size(1) ** 0.5 / model.temperature)
        trust = trust / trust.sum(1, keepdim=True) * matrix.sum(1, keepdim=True)
        return trust @ z + conv.bias

    return dense_stack(model, x, aggregate)


def gcn_svd(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    """As GRB has it: the matrix that is truncated has self-loops, and the result gets others."""
    matrix = oracles.truncated(dense, model.rank) + torch.eye(NODES, dtype=torch.float64)
    degree = matrix.sum(1)
    scale = torch.where(degree > 0, degree.abs() ** -0.5, 0.0)
    normalized = scale[:, None] * matrix * scale[None, :]
    return dense_stack(model, x, lambda w, x: normalized @ linear(w, x))


def gnn_guard(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    def apply(conv: Any, x: Tensor) -> Tensor:
        nonlocal dense
        dense, weights = oracles.guard(x, dense, model.guard.threshold)
        return weights @ x @ conv.lin.weight.T + conv.bias

    return dense_stack(model, x, apply)


def moments(model: Any, x: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of the logits, layer by layer from the paper."""
    elu, first = nn.functional.elu, linear(model.mean[0], x)
    mean, variance = oracles.gaussian_convolution(elu(first), first.relu(), dense)
    for to_mean, to_variance in zip(model.mean[1:], model.variance, strict=True):
        mean, variance = linear(to_mean, elu(mean)), linear(to_variance, elu(variance))
        mean, variance = oracles.gaussian_convolution(elu(mean), variance.relu(), dense)
    return mean, variance


def beltrami_guard(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    """Guard, then one Euler step of the Beltrami flow, layer after layer."""
    for i, layer in enumerate(model.layers):
        x = oracles.layer_norm(x, layer.norm)
        dense, weights = oracles.guard(x, dense, layer.guard.threshold)
        used = weights if layer.guard.reweight else dense
        z = linear(layer.linear, x)
        key, query = layer.flow.attention.key.weight, layer.flow.attention.query.weight
        attended = oracles.attention(z, used, key, query, HEADS)
        norm = oracles.gradient_norm(z, attended, "edges", 0.1)
        z = z + oracles.beltrami(z, used, attended, norm)
        x = z.relu() if i < len(model.layers) - 1 else z
    return x


def heat(model: Any, x: Tensor, dense: Tensor) -> Tensor:
    for i, layer in enumerate(model.layers):
        x = linear(layer.linear, oracles.layer_norm(x, layer.norm))
        for _ in range(2):
            x = x + 0.5 * oracles.heat(x, dense)
        x = x.relu() if i == 0 else x
    return x


CASES: list[tuple[str, Formula, dict[str, Any]]] = [
    *[("MLP", mlp, {"num_layers": n}) for n in (1, 3)],
    *[("GCN", gcn, {"layer_norm": on}) for on in (False, True)],
    *[("GAT", gat, {"heads": heads}) for heads in (1, 3)],
    ("GIN", gin, {}),
    ("GIN", gin, {"batch_norm": False, "layer_norm": False}),
    ("GIN", gin, {"num_layers": 1}),
    ("GIN", gin, {"hidden_channels": 3}),  # so narrow that features are projected first
    *[("GraphSAGE", sage, {"variant": variant}) for variant in ("original", "grb")],
    *[
        ("APPNP", appnp, {"num_iterations": steps, "teleport": teleport, "variant": variant})
        for variant in ("original", "grb")
        for steps, teleport in ((0, 0.3), (1, 1.0), (10, 0.01))
    ],
    *[("RUNG", rung, {"gamma": gamma, "smoothing": s}) for gamma, s in ((6, 0.9), (0.7, 0.5))],
    ("RUNG", rung, {"num_iterations": 0}),
    *[("GPRGNN", gpr_gnn, {"num_iterations": k, "teleport": 0.3}) for k in (0, 4)],
    *[
        ("ElasticGNN", elastic_gnn, {"penalty": penalty, "lambda1": l1, "lambda2": l2})
        for penalty in ("l1", "l21")
        for l1, l2 in ((0.1, 3.0), (3.0, 0.5), (0.0, 3.0))
    ],
    *[("GCNJaccard", gcn_jaccard, {"threshold": t}) for t in (0.01, 0.3)],
    *[
        ("SoftMedianGDC", soft_median, {"temperature": t, "neighbors": k, "teleport": 0.3})
        for t, k in ((0.5, 64), (0.1, 64), (0.5, 6))  # beyond 6 none tie
    ],
    *[("GCNSVD", gcn_svd, {"rank": rank}) for rank in (1, 3, NODES, 50)],
    *[("RobustGCN", lambda *of: moments(*of)[0], {"num_layers": n}) for n in (1, 2, 3)],
    ("GraphPDE", heat, HEAT),
    *[("GNNGuard", gnn_guard, {"threshold": t}) for t in (0.1, 0.5)],
    ("GNNGuard", gnn_guard, {"gradient": "straight_through"}),
    ("GNNGuard", gnn_guard, {"gradient": "detached"}),
    *[("BeltramiGuard", beltrami_guard, {**GUARDED, "reweight": on}) for on in (True, False)],
    ("BeltramiGuard", beltrami_guard, {**GUARDED, "threshold": 0.5}),
]


@pytest.mark.parametrize(("name", "formula", "options"), CASES)
def test_model_logits_dense(name: str, formula: Formula, options: dict[str, Any]) -> None:
    model, x = build_model(getattr(models, name), **options), random_signal()
    rounded = 1e-5 if formula is sage else 1e-7  # SAGEConv keeps its root away from 0
    graphs = [edges(), edges(weighted=True), random_edges()]  # the last one is directed
    # The formulas of guards are of weights of 1.
    for given in graphs[:1] if formula in (gnn_guard, beltrami_guard) else graphs:
        expected = formula(model, x, dense_of(*given))
        torch.testing.assert_close(model(x, *given), expected, rtol=rounded, atol=rounded)


def test_robust_gcn_draws() -> None:
    model, given = build_model(models.RobustGCN, sample_at_test=True), edges()
    mean, variance = moments(model, random_signal(), dense_of(*given))
    assert (variance > 0.01).any()
    torch.manual_seed(3)
    logits = model(random_signal(), *given)
    torch.manual_seed(3)
    expected = mean + torch.randn_like(mean) * variance.sqrt()
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3)


def below_zero() -> tuple[Tensor, Tensor]:
    """Edges whose truncated matrix has rows of a sum below 0, which has no square root."""
    weight = torch.tensor([100.0, 1.0, 100.0, 100.0, 100.0], dtype=torch.float64)
    return torch.tensor([[2, 3, 0, 3, 1], [0, 1, 2, 2, 3]]), weight


def test_gcn_svd_negative_sums() -> None:
    edge_index, weight = below_zero()
    dense = dense_of(edge_index, weight)
    assert (oracles.truncated(dense, 2).sum(1) + 1).min() < -1
    model = build_model(models.GCNSVD, rank=2)
    inputs = [random_signal().requires_grad_(), weight.requires_grad_()]
    logits = model(inputs[0], edge_index, inputs[1])
    torch.testing.assert_close(logits, gcn_svd(model, random_signal(), dense))
    for gradient in torch.autograd.grad(logits.sum(), inputs):
        assert gradient.isfinite().all()
    of_grb = build_model(models.GCNSVD, rank=2, negative_degree="grb")
    assert of_grb(random_signal(), *below_zero()).isnan().all()


@pytest.mark.parametrize("penalty", ["l1", "l21"])
def test_elastic_gnn_objective(penalty: str) -> None:
    options = {"penalty": penalty, "lambda1": 0.2, "lambda2": 0.5, "num_iterations": 3000}
    model, given = build_model(models.ElasticGNN, **options), edges(weighted=True)
    dense, x = dense_of(*given), random_signal()
    local, root = mlp(model, x, dense), dense.sum(1, keepdim=True).sqrt()

    def objective(z: Tensor) -> Tensor:
        apart = (z / root)[:, None] - (z / root)[None]
        norms = apart.abs().sum(2) if penalty == "l1" else apart.norm(dim=2)
        smooth = 0.2 * norms + 0.5 / 2 * apart.square().sum(2)
        return (dense * smooth).sum() / 2 + (z - local).square().sum() / 2  # each edge once

    found = model(x, *given)
    for seed in range(20):
        step = random_signal(seed, found.size(1), NODES)
        for length in (0.1, 1e-3):
            assert objective(found) < objective(found + length * step)


def test_gcn_jaccard_cache() -> None:
    model, (edge_index, weight) = build_model(models.GCNJaccard, threshold=0.3), edges()
    x = random_signal()
    for change in (
        lambda: None,
        lambda: x.neg_(),
        lambda: edge_index.copy_(NODES - 1 - edge_index),
        lambda: model.raw.follow(feature_scale(random_signal(3))),
    ):
        change()
        for _ in range(2):
            found = model(x, edge_index, weight)
            expected = gcn_jaccard(model, x, dense_of(edge_index, weight))
            torch.testing.assert_close(found, expected)
