"""Flags of a victim's own predictions."""

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.evaluation.flags import Flag
from robust_diffusion.evaluation.victim_flags import with_victim_flags
from robust_diffusion.flows import Grand, Heat
from robust_diffusion.models import GraphPDE
from robust_diffusion.solver import Solver
from tests.evaluation.test_flags import RandomLogits


@pytest.fixture
def attacked(make_datamodule):  # type: ignore[no-untyped-def]
    datamodule = make_datamodule()
    datamodule.setup()
    graph = datamodule.graph
    datamodule.add_test_graph("speit", graph.x, graph.edge_index)
    return datamodule


def flags_of(victim: nn.Module, attacked, **not_finite: int) -> dict[str, list[str]]:  # type: ignore[no-untyped-def]
    found = with_victim_flags(
        {"speit": [Flag("no_effect", "nothing")]},
        victim.eval(),
        clean=attacked.view("test"),
        graphs={"speit": {"speit": attacked.test_graph("speit")}},
        not_finite=not_finite,
        seed=0,
    )
    return {name: [flag.code for flag in own] for name, own in found.items()}


def pde(attacked, flow: type, t_end: float) -> nn.Module:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    return GraphPDE(
        attacked.num_features,
        8,
        attacked.num_classes,
        flow=lambda channels: flow(channels, t_end=t_end),
        solver=Solver("euler", num_steps=1),
    )


@pytest.mark.faults
@pytest.mark.parametrize(("growth", "diverged"), [(1.0, False), (1e4, True), (None, True)])
def test_a_state_that_grows_is_flagged(  # type: ignore[no-untyped-def]
    attacked, growth: float | None, *, diverged: bool
) -> None:
    found = with_victim_flags(
        {},
        pde(attacked, Heat, 0.01).eval(),
        clean=attacked.view("test"),
        graphs={},
        not_finite={},
        norm_growth=growth,
        seed=0,
    )
    assert [flag.code for flag in found.get("victim", [])] == ["diverged"] * diverged


def test_flags_of_the_attack_stay(attacked) -> None:  # type: ignore[no-untyped-def]
    assert flags_of(pde(attacked, Heat, 0.01), attacked) == {"speit": ["no_effect"]}


def test_coarse_solver_is_told(attacked) -> None:  # type: ignore[no-untyped-def]
    # One Euler step of 30 on dZ/dt = (A - I) Z leaves the stable region.
    assert "solvers_disagree" in flags_of(pde(attacked, Heat, 30.0), attacked)["speit"]
    assert "solvers_disagree" not in flags_of(pde(attacked, Grand, 0.01), attacked)["speit"]


def test_broken_logits_are_told(attacked) -> None:  # type: ignore[no-untyped-def]
    assert "logits_not_finite" in flags_of(pde(attacked, Heat, 0.01), attacked, speit=3)["speit"]


def test_random_victim_is_told(attacked) -> None:  # type: ignore[no-untyped-def]
    class Constant(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x.new_zeros(x.size(0), attacked.num_classes)

    assert flags_of(RandomLogits(Constant()), attacked)["victim"] == ["stochastic"]
    assert "victim" not in flags_of(Constant(), attacked)
