import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GCNSVD, GNNGuard, GraphPDE
from robust_diffusion.robustness import BlackBox, WhiteBox
from robust_diffusion.robustness.trained import TrainedModel
from tests.graphs import without_type_checks

Make = Callable[..., Any]


class Untouchable(nn.Module):
    """A victim that nobody may look at."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        raise AssertionError("the black-box attacker looked at the victim")


def trained(model: nn.Module, state: str = "state") -> TrainedModel:
    return TrainedModel(model.eval(), 1, 1.0, 0.5, state, Path("entry"), reused=False)


def gcn(in_channels: int, out_channels: int) -> nn.Module:
    return GCN(in_channels, 8, out_channels)


def test_black_box_trains_every_surrogate_and_leaves_the_victim_alone(make_fit: Make) -> None:
    fit = make_fit()
    asked = []

    def train(name: str, build: Callable[..., nn.Module], by: object, seeding: str) -> TrainedModel:
        assert (by, seeding) == (fit, "name")
        asked.append(name)
        return trained(build(4, 3), state=name)

    threat = BlackBox({"gcn": gcn, "other": gcn}, fit)
    attacked = threat.attacked_models(trained(Untouchable()), train)
    assert asked == list(attacked) == ["gcn", "other"]
    assert [model.state for model in attacked.values()] == ["gcn", "other"]
    assert all(isinstance(model.model, GCN) for model in attacked.values())


@pytest.mark.faults
@pytest.mark.parametrize(
    ("surrogates", "options", "key"),
    [
        ({}, {}, "surrogate="),
        ({"gcn": gcn, "../x": gcn}, {}, "surrogates="),
        ({"gcn": gcn}, {"labels": "wrong"}, "threat.labels="),
        ({"gcn": gcn}, {"seeding": "wrong"}, "threat.seeding="),
    ],
)
def test_a_threat_that_cannot_be(make_fit: Make, surrogates: Any, options: Any, key: str) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=f"^{re.escape(key)}"):
        BlackBox(surrogates, make_fit(), **options)


def never(*_: Any) -> TrainedModel:
    raise AssertionError("a white-box attacker trains nothing")


@pytest.mark.parametrize("cls", [GNNGuard, GCNSVD])
def test_an_adaptive_attacker_differentiates_the_defence(cls: type[nn.Module]) -> None:
    torch.manual_seed(0)  # of others, the guard may prune every edge
    victim = trained(cls(4, 8, 3, gradient="detached"))
    threat = WhiteBox(name="adaptive", gradient="exact")
    (attacked,) = threat.attacked_models(victim, never).values()
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    weight = torch.full((6,), 0.7, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        attacked.model(torch.rand(3, 4), edge_index, weight).sum(), weight
    )
    assert gradient.abs().sum() > 0


def test_the_adaptive_threat_takes_the_form_that_a_model_declares() -> None:
    victim = trained(GNNGuard(4, 8, 3))
    (attacked,) = WhiteBox(gradient="adaptive").attacked_models(victim, never).values()
    assert attacked.model.guard.gradient == "straight_through"
    assert victim.model.guard.gradient == "exact"
    assert attacked.state == victim.state


@pytest.mark.parametrize("adjoint", [True, False])
def test_white_box_differentiates_the_solver_either_way(*, adjoint: bool) -> None:
    solver = Solver("rk4", num_steps=8, adjoint=not adjoint)
    victim = trained(GraphPDE(4, 8, 3, flow=Heat, solver=solver))
    (attacked,) = WhiteBox(adjoint=adjoint).attacked_models(victim, never).values()
    assert all(layer.solver.adjoint is adjoint for layer in attacked.model.layers)
    assert all(layer.solver.adjoint is not adjoint for layer in victim.model.layers)


def test_labels_read_from_the_command_line(compose: Make) -> None:
    for threat in ("white_box", "adaptive", "black_box"):
        cfg = compose(f"threat={threat}", "threat.labels=true")
        assert instantiate(cfg.threat).labels == "true"
