"""What every attack under conf/attack keeps to; a new one is found by itself."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.base import Classifier
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models import GCN
from tests.attacks.contract import (
    BUDGET,
    NAMES,
    broken,
    clean,
    graph,
    make,
    names,
    random_states,
    run,
    same,
    state,
    trained,
)
from tests.attacks.graphs import mean_of_neighbours, nan_gradient, without_gradient


@pytest.fixture(scope="module", params=NAMES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


@pytest.fixture(scope="module")
def perturbed(attack: Attack) -> PerturbedGraph:
    return run(attack)


def test_the_result_is_a_simple_undirected_graph_within_the_budget(
    attack: Attack, perturbed: PerturbedGraph
) -> None:
    assert not broken(attack, perturbed, BUDGET)
    assert not perturbed.x.requires_grad


def test_something_is_spent(attack: Attack, perturbed: PerturbedGraph) -> None:
    spent = spent_budget(clean(graph()), perturbed)
    flips = spent.added_edges + spent.removed_edges
    if attack.kind == "injection":
        assert spent.injected_nodes > 0
        assert spent.injected_edges > 0
        assert flips == spent.changed_nodes == spent.largest_feature_change == 0
    else:
        assert spent.injected_nodes == spent.injected_edges == 0
        assert flips + spent.changed_nodes > 0


def test_the_seed_decides(attack: Attack, perturbed: PerturbedGraph) -> None:
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    before = random_states()
    assert same(run(attack), perturbed)
    assert not same(run(attack, seed=1), perturbed)
    assert random_states() == before


def test_the_model_is_attacked_in_eval_mode_and_left_as_it_was(
    attack: Attack, perturbed: PerturbedGraph
) -> None:
    model = copy.deepcopy(trained()).train()
    next(model.children()).eval()
    next(model.parameters()).requires_grad_(requires_grad=False)
    before = state(model)
    assert same(run(attack, model=model), perturbed)
    assert state(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_data_are_left_as_they_were(attack: Attack) -> None:
    given, targets = graph().clone(), graph().index_test.clone()
    run(attack, data=given, targets=targets)
    assert given.keys() == graph().keys()
    for key, value in graph().to_dict().items():
        assert torch.equal(given[key], value) if isinstance(value, Tensor) else given[key] == value
    assert not given.x.requires_grad
    assert torch.equal(targets, graph().index_test)


def test_any_callable_can_be_attacked(attack: Attack, perturbed: PerturbedGraph) -> None:
    through = run(attack, model=lambda x, e, w=None: trained()(x, e, w))
    assert torch.equal(through.edge_index, perturbed.edge_index)
    # A module is frozen and called on what stays the same only once, which rounds otherwise.
    torch.testing.assert_close(through.x, perturbed.x, rtol=0, atol=1e-3)
    spent = spent_budget(clean(graph()), run(attack, model=mean_of_neighbours))
    assert spent.injected_nodes + spent.added_edges + spent.removed_edges > 0


def test_an_attack_needs_targets(attack: Attack) -> None:
    with pytest.raises(ConfigError, match="target nodes: none"):
        run(attack, targets=graph().index_test[:0])


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(names(need="predictions"))))
def test_what_needs_nothing_of_the_model_does_not_call_it(name: str) -> None:
    def never(*_: Any) -> Tensor:
        raise AssertionError("called")

    run(make(name), model=never)
    assert not make(name).needs


@pytest.mark.parametrize("name", names(need="predictions"))
def test_labels_that_come_with_the_graph_take_the_place_of_predictions(name: str) -> None:
    data = clean(graph())
    plain = run(make(name), data=data)
    data.y = trained()(data.x, data.edge_index).argmax(1)
    assert same(run(make(name), data=data), plain)
    data.y = (data.y + torch.arange(data.y.numel())) % 7
    assert not same(run(make(name), data=data), plain)


def nan_logits(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return mean_of_neighbours(x, edge_index) * torch.nan


def takes_no_weights(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x, edge_index)


def ignores_weights(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return mean_of_neighbours(x, edge_index)


NARROW = GCN(graph().num_features - 1, 8, 7)
BY_EDGES = names(need="edge_gradient")
BY_GRADIENT = sorted({*names(need="feature_gradient"), *BY_EDGES})
UNFIT: list[tuple[Classifier, list[str]]] = [
    (NARROW, names(need="predictions")),
    (nan_logits, names(need="predictions")),
    (nan_gradient, BY_GRADIENT),
    (without_gradient, BY_GRADIENT),
    (takes_no_weights, BY_EDGES),
    (ignores_weights, BY_EDGES),
]


@pytest.mark.parametrize(("model", "name"), [(model, of) for model, ofs in UNFIT for of in ofs])
def test_a_model_that_cannot_be_attacked_is_an_error(model: Classifier, name: str) -> None:
    with pytest.raises(AttackError, match=rf"^attack={name}: [^\n]*$"):
        run(make(name), model=model)


def test_an_empty_budget_gives_the_clean_graph(attack: Attack) -> None:
    empty = Budget(0, 5, (-1.0, 1.0), node_ratio=0, edge_ratio=0)
    perturbed = run(attack, budget=empty)
    assert torch.equal(perturbed.x, graph().x)
    assert torch.equal(perturbed.edge_index, graph().edge_index)
