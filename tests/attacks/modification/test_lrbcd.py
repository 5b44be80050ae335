from typing import Any

import pytest
import torch
from torch_geometric.utils import degree

from robust_diffusion.attacks import LGRBCD, LRBCD, Budget
from robust_diffusion.attacks.modification.base import flipped
from robust_diffusion.attacks.modification.lrbcd import (
    best_within_limits,
    local_limits,
    within_limits,
)
from robust_diffusion.attacks.problem import Problem
from tests.attacks.contract import clean, graph, run, trained

BUDGET = Budget(0, 0, (-1.0, 1.0), edge_ratio=0.5)
PAIRS = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
LIMITS = torch.tensor([2, 1, 1, 5])


def flips_and_degrees(attack: Any) -> tuple[torch.Tensor, torch.Tensor]:
    perturbed = run(attack, budget=BUDGET)
    pairs = flipped(graph().edge_index, perturbed.edge_index, 200)
    return degree(pairs.flatten(), 200), degree(graph().edge_index[0], 200)


@pytest.mark.parametrize("attack", [LRBCD, LGRBCD])
@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_no_node_has_more_flips_than_its_share(attack: Any, ratio: float) -> None:
    flips, degrees = flips_and_degrees(attack(num_steps=10, block_size=5000, local_ratio=ratio))
    assert (flips <= ratio * degrees).all()
    assert flips.sum() > 0.6 * (ratio * degrees).floor()[graph().index_test].sum()


@pytest.mark.parametrize("attack", [LRBCD, LGRBCD])
def test_without_the_limits_some_nodes_would_have_more(attack: Any) -> None:
    flips, degrees = flips_and_degrees(attack.__base__(num_steps=10, block_size=5000))
    assert (flips > degrees).any()


@pytest.mark.parametrize(("attack", "loss"), [(LRBCD, "tanh_margin"), (LGRBCD, "prob_margin")])
def test_it_harms(attack: Any, loss: Any) -> None:
    perturbed = run(attack(num_steps=20, block_size=5000, loss=loss), budget=BUDGET)
    problem = Problem("any", trained(), clean(graph()), graph().index_test)
    assert problem.right(perturbed.x, perturbed.edge_index) < 55


def test_limits_are_shares_in_decimals() -> None:
    problem = Problem("any", trained(), clean(graph()), graph().index_test)
    degrees = degree(graph().edge_index[0], 200, dtype=torch.long)
    assert torch.equal(local_limits(problem, 0.3), degrees * 3 // 10)


def test_weights_are_cut_from_the_worthiest_down() -> None:
    weights = torch.tensor([0.5, 0.9, 0.8, 1.0])
    cut = within_limits(PAIRS, weights, LIMITS, weights)
    # 2-3 fills node 2, so that 0-2 and 1-2 get nothing, and 0-1 stays.
    torch.testing.assert_close(cut, torch.tensor([0.5, 0.0, 0.0, 1.0]))
    other = within_limits(PAIRS, weights, LIMITS, torch.tensor([0.5, 0.9, 0.8, 0.0]))
    torch.testing.assert_close(other, torch.tensor([0.5, 0.9, 0.1, 0.0]))
    free = within_limits(PAIRS, weights, torch.full((4,), 9), weights)
    assert torch.equal(free, weights)


def test_the_best_pairs_are_chosen_within_the_limits() -> None:
    scores = torch.tensor([0.1, 0.9, 0.8, 0.7])
    assert best_within_limits(PAIRS, scores, LIMITS, 4).tolist() == [1, 0]
    assert best_within_limits(PAIRS, scores, LIMITS, 1).tolist() == [1]
    assert best_within_limits(PAIRS, scores, 0 * LIMITS, 4).tolist() == []
