"""Every attack reaches the same accuracy, whatever the unit and the origin of the features."""

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget
from tests.attacks.contract import BUDGET, NAMES, graph, make, run
from tests.attacks.graphs import mean_of_neighbours


def accuracy(name: str, scale: float, shift: float) -> float:
    """The remaining accuracy if the model gets its features back in their first unit."""

    def model(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return mean_of_neighbours((x - shift) / scale, edge_index, edge_weight)

    x, edge_index = graph().x.double(), graph().edge_index
    data = Data(x=shift + scale * x, edge_index=edge_index)
    limits = (shift - 0.94 * scale, shift + 0.94 * scale)
    budget = Budget(6, 10, limits, node_ratio=0.2, edge_ratio=0.3, epsilon=BUDGET.epsilon * scale)
    perturbed = run(make(name), model=model, data=data, budget=budget)
    labels, targets = model(data.x, edge_index).argmax(1), graph().index_test
    attacked = model(perturbed.x, perturbed.edge_index).argmax(1)
    return (attacked[targets] == labels[targets]).double().mean().item()


# Trains the model itself from random weights, which depends on the unit of its input.
TRAINED = {"meta_grbcd"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRAINED])
def test_an_attack_does_not_depend_on_the_unit_of_the_features(name: str) -> None:
    expected = accuracy(name, 1.0, 0.0)
    for scale, shift in ((1e-3, 0.0), (1e3, 0.0), (1e-3, 5e-3), (1e3, -2e3)):
        assert accuracy(name, scale, shift) == pytest.approx(expected, abs=0.02), (scale, shift)


def test_the_limits_of_published_runs_leave_steps_as_they_are() -> None:
    assert (BUDGET.unit, BUDGET.centre) == (1.0, 0.0)
    assert torch.tensor(Budget(6, 10, (0.5, 0.5)).unit) == 1
