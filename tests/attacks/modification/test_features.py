from typing import Any

import pytest
import torch

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.losses import margins
from robust_diffusion.attacks.modification.features import (
    FeatureRecipe,
    chosen_nodes,
    moved_features,
)
from robust_diffusion.attacks.problem import Problem
from tests.attacks.contract import clean, graph, trained

BUDGET = Budget(0, 0, (-0.94, 0.94), node_ratio=0.2, epsilon=0.3)


def problem() -> Problem:
    return Problem("any", trained(), clean(graph()), graph().index_test)


def recipe(nodes: Any = "gradient", loss: Any = "tanh_margin") -> FeatureRecipe:
    return FeatureRecipe(nodes=nodes, loss=loss)


def right(found: Any) -> int:
    x = graph().x.index_copy(0, found.tensors["nodes"], found.tensors["features"])
    return problem().right(x, graph().edge_index)


def test_the_nodes_by_margin_are_those_nearest_to_being_lost() -> None:
    nodes = chosen_nodes(problem(), graph().edge_index, BUDGET, recipe("margin"))
    logits = trained()(graph().x, graph().edge_index)
    margin = margins(logits, logits.argmax(1))
    others = graph().index_test[~torch.isin(graph().index_test, nodes)]
    assert nodes.unique().numel() == 12
    assert margin[nodes].min() >= margin[others].max()


def test_the_nodes_by_gradient_gain_most_to_first_order() -> None:
    tried = problem()
    nodes = chosen_nodes(tried, graph().edge_index, BUDGET, recipe())
    x = graph().x.clone().requires_grad_()
    logits = trained()(x, graph().edge_index)[graph().index_test]
    (slope,) = torch.autograd.grad(margins(logits, tried.labels).tanh().mean(), x)
    gain = BUDGET.epsilon * slope.abs().sum(1)  # no feature is within epsilon of the limits
    assert graph().x.abs().max() < 0.94 - BUDGET.epsilon or nodes.numel() == 12
    ranked = graph().index_test[gain[graph().index_test].argsort(descending=True)]
    assert torch.isin(nodes, ranked[:20]).all()
    assert ranked[0] in nodes


@pytest.mark.parametrize("loss", ["logit", "tanh_margin", "masked"])
def test_steps_harm_and_a_later_start_loses_nothing(loss: Any) -> None:
    tried, edges = problem(), graph().edge_index
    first = moved_features(tried, edges, BUDGET, recipe(loss=loss), 5)
    second = moved_features(tried, edges, BUDGET, recipe(loss=loss), 20, first)
    assert right(first) == first.metadata["right"]
    assert right(second) <= right(first) <= 60
    assert right(second) < 60
    assert torch.equal(first.tensors["nodes"], second.tensors["nodes"])
    change = second.tensors["features"] - graph().x[second.tensors["nodes"]]
    assert 0.29 < change.abs().max() <= 0.3 + 1e-6
