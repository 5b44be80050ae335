from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.randomness import seeded
from robust_diffusion.attacks.rows import FixedRows
from robust_diffusion.models import (
    APPNP,
    GAT,
    GCN,
    GCNSVD,
    GIN,
    MLP,
    GNNGuard,
    GraphSAGE,
    RobustGCN,
)

MODELS = [APPNP, GAT, GCN, GCNSVD, GIN, GNNGuard, GraphSAGE, MLP, RobustGCN]
OLD, NEW, FEATURES, CLASSES = 60, 5, 12, 3


@pytest.fixture
def x() -> Tensor:
    return torch.rand(OLD, FEATURES, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def edge_index() -> Tensor:
    return torch.randint(OLD + NEW, (2, 200), generator=torch.Generator().manual_seed(1))


def frozen(cls: Callable[..., nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return cls(FEATURES, 8, CLASSES).eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize("cls", MODELS)
def test_outputs_and_gradients_are_those_of_plain_rows(
    cls: Callable[..., nn.Module], x: Tensor, edge_index: Tensor
) -> None:
    model, old = frozen(cls), FixedRows(x)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        new = torch.rand(NEW, FEATURES, generator=generator).requires_grad_()
        outputs = [model(rows, edge_index) for rows in (torch.cat([x, new]), old.followed_by(new))]
        gradients = [torch.autograd.grad(out.square().sum(), new)[0] for out in outputs]
        assert type(outputs[1]) is Tensor
        torch.testing.assert_close(*outputs)
        scale = gradients[0].abs().max().item()
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-6 * scale)


def test_what_a_layer_makes_of_the_fixed_rows_is_computed_once(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = []
    layer, old = nn.Linear(FEATURES, 4).requires_grad_(requires_grad=False), FixedRows(x)
    under = FixedRows.under

    def counted(self: FixedRows, compute: Callable[[Tensor], Tensor], *identity: Any) -> FixedRows:
        def watched(rows: Tensor) -> Tensor:
            heights.append(rows.size(0))
            return compute(rows)

        return under(self, watched, *identity)

    monkeypatch.setattr(FixedRows, "under", counted)
    for _ in range(3):
        new = torch.rand(NEW, FEATURES)
        torch.testing.assert_close(layer(old.followed_by(new)), layer(torch.cat([x, new])))
    assert heights == [OLD]


def test_rows_are_put_together_only_when_looked_at(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = nn.Sequential(nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 4))
    new, together = torch.rand(NEW, FEATURES), []
    monkeypatch.setattr(torch, "cat", lambda parts: together.append(len(parts)))
    out = layers.requires_grad_(requires_grad=False)(FixedRows(x).followed_by(new))
    assert out.shape == (OLD + NEW, 4)
    assert out.dtype == x.dtype
    assert together == []


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return x * 2 + x.mean(1, keepdim=True)


class Scripted(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = scripted(x)
        return out


class Compiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.compile(nn.Linear(FEATURES, CLASSES), backend="eager")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


class NormalizedOverAll(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape)


class InPlace(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x += 0.3
        return x.relu_()


class Noisy(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return F.linear(x + torch.rand(()), x.new_ones(CLASSES, FEATURES))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("build", [Scripted, Compiled, NormalizedOverAll, InPlace, Noisy])
def test_rows_are_those_of_a_plain_tensor_to_any_model(
    build: Callable[[], nn.Module], x: Tensor, edge_index: Tensor
) -> None:
    model = build().requires_grad_(requires_grad=False)
    edges = edge_index[:, (edge_index < OLD).all(0)]
    before, state = x.clone(), torch.get_rng_state()
    problem = Problem("any", model, Data(x, edges), torch.arange(3))
    new = torch.rand(NEW, FEATURES, requires_grad=True)
    torch.set_rng_state(state)
    outputs = []
    for rows in (lambda: torch.cat([x, new]), lambda: problem.fixed_rows.followed_by(new)):
        with seeded(0):
            outputs.append(model(rows(), edge_index))
    gradients = [torch.autograd.grad(out.square().sum(), new)[0] for out in outputs]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*gradients)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_weight_that_changes_is_not_taken_for_the_old_one(x: Tensor) -> None:
    layer, old = nn.Linear(FEATURES, 4).requires_grad_(requires_grad=False), FixedRows(x)
    new = torch.rand(NEW, FEATURES)
    layer(old.followed_by(new))
    layer.weight.mul_(2)
    torch.testing.assert_close(layer(old.followed_by(new)), layer(torch.cat([x, new])))


def test_a_trained_weight_gets_its_gradient_from_every_row(x: Tensor) -> None:
    layer, old, new = nn.Linear(FEATURES, 4), FixedRows(x), torch.rand(NEW, FEATURES)
    gradients = [
        torch.autograd.grad(layer(rows).square().sum(), layer.weight)[0]
        for rows in (old.followed_by(new), torch.cat([x, new]))
    ]
    torch.testing.assert_close(*gradients)
