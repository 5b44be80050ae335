"""What every attack under conf/attack keeps to; a new one is found by itself."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, contains_self_loops, is_undirected

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, spent_budget
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models import GCN
from tests.attacks.contract import (
    BUDGET,
    NAMES,
    attack_class,
    clean,
    graph,
    make,
    names,
    options,
    random_states,
    run,
    same,
    state,
    trained,
)
from tests.attacks.graphs import mean_of_neighbours
from tests.graphs import without_type_checks


@pytest.fixture(scope="module", params=NAMES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


@pytest.fixture(scope="module")
def perturbed(attack: Attack) -> PerturbedGraph:
    return run(attack)


def test_the_configuration_names_the_attack(attack: Attack) -> None:
    assert attack.name in NAMES
    assert attack_class(attack.name) is type(attack)
    assert attack.kind in ("injection", "modification")
    assert attack.needs <= {"predictions", "feature_gradient", "edge_gradient"}


def test_there_are_attacks_of_both_kinds() -> None:
    assert {"random", "fgsm", "pgd", "speit", "tdgia", "metagia", "agia"} <= set(names("injection"))
    assert {"pgd_modification", "dice", "random_flip", "prbcd", "grbcd"} <= set(
        names("modification")
    )


def test_the_result_is_a_simple_undirected_graph(perturbed: PerturbedGraph) -> None:
    edges, num_nodes = perturbed.edge_index, perturbed.x.size(0)
    assert edges.dtype == torch.int64
    assert edges.min() >= 0
    assert edges.max() < num_nodes
    assert not contains_self_loops(edges)
    assert coalesce(edges).size(1) == edges.size(1)
    assert is_undirected(edges, num_nodes=num_nodes)


def test_the_result_carries_no_gradient(perturbed: PerturbedGraph) -> None:
    assert not perturbed.x.requires_grad
    assert perturbed.x.isfinite().all()
    assert perturbed.x.dtype == graph().x.dtype


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


@pytest.mark.parametrize("name", names(need="predictions"))
def test_a_model_of_another_width_is_refused_in_one_line(name: str) -> None:
    narrow = GCN(graph().num_features - 1, 8, 7)
    with pytest.raises(AttackError, match=f"attack={name}: .* graph of 16 features .*; ") as info:
        run(make(name), model=narrow)
    assert "\n" not in str(info.value)


def nan_logits(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return mean_of_neighbours(x, edge_index) * torch.nan


@pytest.mark.parametrize("name", names(need="predictions"))
def test_logits_that_are_not_finite_are_an_error(name: str) -> None:
    with pytest.raises(AttackError, match=f"attack={name}: .* not finite"):
        run(make(name), model=nan_logits)


def nan_gradient(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    total = x.sum() if edge_weight is None else x.sum() + edge_weight.sum()
    return mean_of_neighbours(x, edge_index, edge_weight) + (0 * total).sqrt()


GRADIENT = sorted({*names(need="feature_gradient"), *names(need="edge_gradient")})


@pytest.mark.parametrize("name", GRADIENT)
def test_a_gradient_that_is_not_finite_is_an_error(name: str) -> None:
    with pytest.raises(AttackError, match=f"attack={name}: the gradient .* is not finite"):
        run(make(name), model=nan_gradient)


def through_numpy(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return mean_of_neighbours(x.detach(), edge_index)


@pytest.mark.parametrize("name", GRADIENT)
def test_a_model_without_gradient_is_an_error(name: str) -> None:
    of = "features" if "feature_gradient" in make(name).needs else "edge weights"
    with pytest.raises(AttackError, match=f"attack={name}: .* not differentiable in the {of}; "):
        run(make(name), model=through_numpy)


@pytest.mark.parametrize("name", names(need="edge_gradient"))
@pytest.mark.parametrize(
    "model",
    [
        lambda x, edge_index: mean_of_neighbours(x, edge_index),
        lambda x, edge_index, edge_weight=None: mean_of_neighbours(x, edge_index),
    ],
    ids=["takes no weights", "does not use them"],
)
def test_a_model_without_edge_weights_is_an_error(name: str, model: Callable[..., Tensor]) -> None:
    match = f"attack={name}: .* not differentiable in the edge weights; "
    with pytest.raises(AttackError, match=match):
        run(make(name), model=model)


def test_an_empty_budget_gives_the_clean_graph(attack: Attack) -> None:
    empty = Budget(0, 5, (-1.0, 1.0), node_ratio=0, edge_ratio=0)
    perturbed = run(attack, budget=empty)
    assert torch.equal(perturbed.x, graph().x)
    assert torch.equal(perturbed.edge_index, graph().edge_index)


def test_the_same_edges_are_passed_in_every_step() -> None:
    """Models find the layout of an edge list once per tensor."""
    for name in ("speit", "fgsm", "pgd", "pgd_modification"):
        seen: list[Tensor] = []

        def model(x: Tensor, edge_index: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(edge_index)
            return trained()(x, edge_index)

        run(make(name), model=model, budget=BUDGET)
        # The clean graph, the attacked one, and the one that `stands_in` tries.
        assert len({id(edges) for edges in seen}) in (2, 3)


BAD: dict[tuple[str, str], list[object]] = {
    ("speit", "learning_rate"): [0.0, -0.1, math.nan, math.inf],
    ("speit", "num_steps"): [-1, True],
    ("fgsm", "step_size"): [0.0, -0.1, math.nan],
    ("tdgia", "batch_ratio"): [0.0, -0.2, 1.1, math.nan],
    ("tdgia", "variant"): ["loose"],
    ("metagia", "swap_ratio"): [0.0, 1.1],
    ("metagia", "batch_ratio"): [0.0],
    ("metagia", "num_rounds"): [-1],
    ("metagia", "loss_cap"): [0.0],
    ("agia", "learning_rate"): [0.0],
    ("agia", "num_edge_steps"): [-1],
    ("agia", "loss_cap"): [-1.0],
    ("pgd_modification", "step_size"): [0.0],
    ("pgd_modification", "num_steps"): [-1],
    ("pgd_modification", "variant"): ["cube"],
    ("dice", "delete_ratio"): [-0.1, 1.1],
    ("random_flip", "add_ratio"): [-0.1, 1.1],
    ("prbcd", "resampling_ratio"): [0.0],
    ("prbcd", "learning_rate"): [0.0],
    **{
        (name, key): [0]
        for name in ("prbcd", "grbcd", "lrbcd", "lgrbcd")
        for key in ("block_size", "num_steps")
    },
    **{(name, "local_ratio"): [0.0, 1.1, math.nan] for name in ("lrbcd", "lgrbcd")},
    ("lrbcd", "resampling_ratio"): [0.0],
    ("lrbcd", "learning_rate"): [0.0],
    ("auto", "num_steps"): [-1],
    ("auto_modification", "num_steps"): [0],
    **{
        (name, "homophily"): [-0.1, math.nan]
        for name in set(names("injection")) & set(names(need="feature_gradient"))
        if "homophily" in options(name)
    },
}


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [(*option, v) for option, values in sorted(BAD.items()) for v in values],
)
def test_a_bad_option_names_its_key(name: str, key: str, value: object) -> None:
    match = rf"attacks\.{name}\.{key}={value}: (must be|unknown)"
    with without_type_checks(), pytest.raises(ConfigError, match=match):
        attack_class(name)(**{key: value})
