"""Flags of a victim's own predictions."""

import pytest
import torch
from robust_diffusion.evaluation.victim_flags import with_victim_flags
from torch import Tensor, nn

from robust_diffusion.evaluation.flags import Flag
from robust_diffusion.evaluation.subject import Task
from robust_diffusion.flows import Grand, Heat
from robust_diffusion.models import GraphPDE
from robust_diffusion.solver import Solver
from tests.attacks.graphs import small_graph
from tests.evaluation.test_flags import RandomLogits

GRAPH = small_graph()
TASK = Task(GRAPH, GRAPH.index_test, torch.device("cpu"))


def flags_of(
    victim: nn.Module, growth: float | None = 0.0, task: Task = TASK
) -> dict[str, list[str]]:
    given = {"speit": [Flag("no_effect", "nothing")]}
    found = with_victim_flags(
        given, victim.eval(), task, {"speit": [GRAPH]}, norm_growth=growth, seed=0
    )
    return {name: [flag.code for flag in own] for name, own in found.items()}


def pde(flow: type, t_end: float) -> nn.Module:
    torch.manual_seed(0)
    return GraphPDE(
        GRAPH.num_features,
        8,
        GRAPH.num_classes,
        flow=lambda channels: flow(channels, t_end=t_end),
        solver=Solver("euler", num_steps=1),
    )


class Constant(nn.Module):
    """Class 0 everywhere."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.logits = torch.full((GRAPH.num_classes,), value)
        self.logits[0] += 1

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.logits.expand(x.size(0), -1)


@pytest.mark.faults
@pytest.mark.parametrize(("growth", "diverged"), [(1.0, False), (1e4, True), (None, True)])
def test_a_state_that_grows_is_flagged(growth: float | None, *, diverged: bool) -> None:
    found = flags_of(pde(Heat, 0.01), growth)
    assert found.get("victim", []) == ["diverged"] * diverged


def test_coarse_solver_is_told() -> None:
    # One Euler step of 200 on dZ/dt = (A - I) Z leaves the stable region.
    assert "solvers_disagree" in flags_of(pde(Heat, 200.0))["speit"]
    assert flags_of(pde(Grand, 0.01)) == {"speit": ["no_effect"]}


def test_a_row_carries_the_flags_of_attack_and_victim() -> None:
    random = flags_of(RandomLogits(Constant()))
    assert random == {"victim": ["stochastic"], "speit": ["no_effect", "stochastic"]}
    assert flags_of(Constant()) == {"speit": ["no_effect"]}


def test_at_no_accuracy_no_attack_found_too_little_but_the_number_may_be_wrong() -> None:
    assert flags_of(Constant(torch.nan))["speit"] == ["no_effect", "logits_not_finite"]
    graph = GRAPH.clone()
    graph.y = graph.y.clamp_min(1)
    never_right = Task(graph, graph.index_test, torch.device("cpu"))
    assert flags_of(Constant(), task=never_right) == {}
    assert flags_of(RandomLogits(Constant()), task=never_right)["speit"] == ["stochastic"]
