import pytest
import torch

from robust_diffusion.attacks import Budget, RandomFlip, SpentBudget, spent_budget
from robust_diffusion.attacks.modification.base import edges_at
from tests.attacks.contract import clean, graph, trained


def run(ratio: float, add_ratio: float) -> SpentBudget:
    budget = Budget(0, 0, (-1.0, 1.0), edge_ratio=ratio)
    attack, generator = RandomFlip(add_ratio=add_ratio), torch.Generator().manual_seed(0)
    perturbed = attack(trained(), clean(graph()), graph().index_test, budget, generator)
    assert torch.equal(perturbed.x, graph().x)
    return spent_budget(clean(graph()), perturbed)


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("add_ratio", [0.0, 0.25, 0.5, 1.0])
def test_the_whole_budget_is_spent_as_told(ratio: float, add_ratio: float) -> None:
    there = edges_at(graph().index_test, graph().edge_index, graph().num_nodes).size(1)
    spent = run(ratio, add_ratio)
    assert spent.added_edges + spent.removed_edges == int(ratio * there)
    assert spent.added_edges == round(int(ratio * there) * add_ratio)
