"""GRBCD through the training of the attacked model."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robust_diffusion import Budget, GraphPDE, Solver, attack
from robust_diffusion.attacks import MetaGRBCD, spent_budget
from robust_diffusion.attacks.modification.base import flipped
from robust_diffusion.attacks.modification.meta_grbcd import Trained
from robust_diffusion.models import GCN
from robust_diffusion.operators import current_backend
from tests.drawn import CLASSES, FEATURES, drawn_data


def flow(name: str) -> GraphPDE:
    solver = Solver("rk4", num_steps=2, adjoint=True)
    return GraphPDE(FEATURES, 4, out_channels=CLASSES, flow=name, solver=solver, num_layers=2)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: GCN(FEATURES, 4, out_channels=CLASSES),
    **{name: partial(flow, name) for name in ("beltrami", "grand", "uniform_modulation", "hang")},
}


def graph() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = drawn_data()
    return data.x.double(), data.edge_index, data.y, data.train_mask


@pytest.mark.parametrize("model", MODELS)
def test_the_gradient_goes_through_the_training(model: str) -> None:
    torch.manual_seed(0)
    x, edges, y, train = graph()
    generator = torch.Generator()
    trained = Trained(MODELS[model]().double(), y, train, 3, 0.05, generator)

    def loss(weight: Tensor) -> Tensor:
        generator.manual_seed(0)
        return F.cross_entropy(trained(x, edges, weight)[~train], y[~train])

    weight = torch.full((edges.size(1),), 0.7, dtype=torch.double).requires_grad_()
    (slope,) = torch.autograd.grad(loss(weight), weight)
    direction = torch.sign(slope)
    ends = [loss((weight + step * direction).detach().requires_grad_()) for step in (1e-6, -1e-6)]
    along = (ends[0] - ends[1]).item() / 2e-6
    assert torch.dot(slope, direction).item() == pytest.approx(along, rel=1e-3)


@pytest.mark.parametrize("model", ["gcn", "beltrami"])
def test_a_training_lowers_the_loss_and_leaves_the_model_as_it_was(model: str) -> None:
    torch.manual_seed(0)
    x, edges, y, train = graph()
    given = MODELS[model]().double()
    before, before_training = copy.deepcopy(given.state_dict()), current_backend()

    def loss(epochs: int) -> float:
        generator = torch.Generator().manual_seed(0)
        logits = Trained(given, y, train, epochs, 0.05, generator)(x, edges)
        return F.cross_entropy(logits[train], y[train]).item()

    first, last = loss(1), loss(40)
    assert last < 0.9 * first
    assert all(torch.equal(of, before[name]) for name, of in given.state_dict().items())
    assert current_backend() == before_training


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm", "orthogonal"])
def test_a_model_with_parametrized_weights_is_trained(norm: str) -> None:
    x, edges, y, train = graph()
    model = flow("uniform_modulation").double()
    linear = next(part for part in model.modules() if isinstance(part, nn.Linear))
    getattr(nn.utils.parametrizations, norm)(linear)
    weight = torch.ones(edges.size(1), dtype=torch.double).requires_grad_()
    loss = Trained(model, y, train, 2, 0.05, torch.Generator())(x, edges, weight).square().sum()
    assert torch.autograd.grad(loss, weight)[0].any()


def test_only_edges_at_targets_are_flipped() -> None:
    data, targets = drawn_data(), torch.arange(30)
    meta = MetaGRBCD(num_steps=3, num_epochs=2, block_size=60)
    found = attack(
        GCN(FEATURES, 4, out_channels=CLASSES), data, Budget(edge_ratio=1.0), meta, targets=targets
    )
    pairs = flipped(data.edge_index, found.edge_index, len(data.x))
    assert pairs.numel()
    assert torch.isin(pairs, targets).any(0).all()


def test_edges_are_cut_as_well_as_added() -> None:
    data = drawn_data()
    meta = MetaGRBCD(num_steps=6, num_epochs=3, block_size=50)
    model = GCN(FEATURES, 4, out_channels=CLASSES)
    found = attack(model, data, Budget(edge_ratio=0.2), meta, targets=~data.train_mask)
    spent = spent_budget(data, found)
    assert spent.removed_edges > 0
    assert spent.added_edges > 0
