"""What every attack under conf/attack keeps to; a new one is found by itself."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.injection.features import neighbourhood
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
    options,
    random_states,
    run,
    same,
    state,
    trained,
    victim_and_task,
)
from tests.attacks.graphs import mean_of_neighbours, nan_gradient, without_gradient
from tests.graphs import without_type_checks


def marked(names: list[str]) -> list[Any]:
    """The attacks; an ensemble of a dozen is slow, whose budgets alone are always tested."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=slow) if n == "auto_modification" else n for n in names]


@pytest.fixture(scope="module", params=marked(NAMES))
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


@pytest.fixture(scope="module")
def perturbed(attack: Attack) -> PerturbedGraph:
    return run(attack)


def test_the_result_spends_something_within_the_budget(
    attack: Attack, perturbed: PerturbedGraph
) -> None:
    assert not broken(attack, perturbed, BUDGET)
    assert not perturbed.x.requires_grad
    spent = spent_budget(clean(graph()), perturbed)
    flips = spent.added_edges + spent.removed_edges
    if attack.kind == "injection":
        assert spent.injected_nodes > 0
        assert spent.injected_edges > 0
        assert flips == spent.changed_nodes == spent.largest_feature_change == 0
    else:
        assert spent.injected_nodes == spent.injected_edges == 0
        assert flips + spent.changed_nodes > 0


def test_attack_seed(attack: Attack, perturbed: PerturbedGraph) -> None:
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    before = random_states()
    assert same(run(attack), perturbed)
    assert not same(run(attack, seed=1), perturbed)
    assert random_states() == before


def test_attack_restores_the_model(attack: Attack, perturbed: PerturbedGraph) -> None:
    model = copy.deepcopy(trained()).train()
    next(model.children()).eval()
    next(model.parameters()).requires_grad_(requires_grad=False)
    before = state(model)
    assert same(run(attack, model=model), perturbed)
    assert state(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_attack_restores_the_data(attack: Attack) -> None:
    given, targets = graph().clone(), graph().index_test.clone()
    run(attack, data=given, targets=targets)
    assert given.keys() == graph().keys()
    for key, value in graph().to_dict().items():
        assert torch.equal(given[key], value) if isinstance(value, Tensor) else given[key] == value
    assert not given.x.requires_grad
    assert torch.equal(targets, graph().index_test)


def test_attack_callables(attack: Attack, perturbed: PerturbedGraph) -> None:
    if attack.name == "meta_grbcd":
        pytest.skip("retrains the model, and a plain function has nothing to train")
    through = run(attack, model=lambda x, e, w=None: trained()(x, e, w))
    assert torch.equal(through.edge_index, perturbed.edge_index)
    # A module is frozen and called on what stays the same only once, which rounds otherwise.
    torch.testing.assert_close(through.x, perturbed.x, rtol=0, atol=1e-3)
    spent = spent_budget(clean(graph()), run(attack, model=mean_of_neighbours))
    assert spent.injected_nodes + spent.added_edges + spent.removed_edges > 0


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("auto")])
def test_the_passes_that_are_expected_are_those_that_are_made(name: str) -> None:
    attack, model, made = make(name), copy.deepcopy(trained()), []
    with model.register_forward_hook(lambda *_: made.append(1)):
        run(attack, model=model)
    victim, task = victim_and_task(trained())
    expected = attack.expected_passes(BUDGET, task, victim)
    assert len(made) < 3 if expected is None else 2 / 3 <= len(made) / expected <= 3 / 2


def test_an_attack_needs_numbers_of_target_nodes(attack: Attack) -> None:
    mask = torch.isin(torch.arange(graph().num_nodes), graph().index_test)
    for targets, told in ((graph().index_test[:0], "none"), (mask, r"[^\n]*mask")):
        with without_type_checks(), pytest.raises(ConfigError, match=f"^target nodes: {told}"):
            run(attack, targets=targets)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(names(need="predictions"))))
def test_attack_without_needs(name: str) -> None:
    run(make(name), model=pytest.fail, data=graph())
    assert not make(name).needs


@pytest.mark.parametrize("name", marked(names(need="predictions")))
def test_labels_that_come_with_the_graph_take_the_place_of_predictions(name: str) -> None:
    data = clean(graph())
    plain = run(make(name), data=data)
    data.y = trained()(data.x, data.edge_index).argmax(1)
    assert same(run(make(name), data=data), plain)
    data.y = (data.y + torch.arange(data.y.numel())) % 7
    assert not same(run(make(name), data=data), plain)


NARROW = GCN(graph().num_features - 1, 8, out_channels=7)
BY_EDGES, BY_PREDICTIONS = names(need="edge_gradient"), names(need="predictions")
BY_GRADIENT = sorted({*names(need="feature_gradient"), *BY_EDGES})
UNFIT: list[tuple[Any, list[str]]] = [
    (NARROW, BY_PREDICTIONS),
    (lambda x, edges, weight=None: mean_of_neighbours(x, edges) * torch.nan, BY_PREDICTIONS[::4]),
    (nan_gradient, BY_GRADIENT),
    (without_gradient, BY_GRADIENT[::2]),
    (lambda x, edges: mean_of_neighbours(x, edges), BY_EDGES),  # takes no weights
    (lambda x, edges, weight=None: mean_of_neighbours(x, edges), BY_EDGES),  # ignores them
]


@pytest.mark.parametrize(("model", "name"), [(model, of) for model, ofs in UNFIT for of in ofs])
def test_attack_errors_of_models(model: Any, name: str) -> None:
    with pytest.raises(AttackError, match=rf"^attack={name}: [^\n]*$"):
        run(make(name), model=model, data=graph())


def test_attack_empty_budget(attack: Attack) -> None:
    empty = Budget(0, 5, (-1.0, 1.0), node_ratio=0, edge_ratio=0)
    perturbed = run(attack, budget=empty)
    assert torch.equal(perturbed.x, graph().x)
    assert torch.equal(perturbed.edge_index, graph().edge_index)


# Injections


INJECTION_BUDGETS = [
    *(Budget(1, 1, (-0.04, 1.0)), Budget(7, 60, (0.2, 0.9))),
    *(Budget(5, 8, (-0.9, -0.2), max_injected_edges=total) for total in (0, 11)),
]
BY_FEATURES = sorted(set(names("injection")) & set(names(need="feature_gradient")))


@pytest.mark.parametrize("budget", INJECTION_BUDGETS)
@pytest.mark.parametrize("name", names("injection"))
def test_an_injection_stays_within_budget_and_spends_it(name: str, budget: Budget) -> None:
    perturbed = run(make(name), budget=budget)
    assert not broken(make(name), perturbed, budget)
    spent = spent_budget(clean(graph()), perturbed)
    assert spent.injected_nodes == budget.max_injected_nodes or budget.max_injected_edges == 0
    if budget.max_injected_edges is None:
        assert spent.injected_edges > 0
    elif name == "auto":  # which places no edge where it finds none that helps
        assert 0.9 * sum(budget.injected_degrees) <= spent.injected_edges
    else:  # which is shared out
        assert spent.injected_edges == sum(budget.injected_degrees)


@pytest.mark.parametrize("name", names("injection"))
def test_fewer_targets_than_edges_get_one_edge_each_of_a_new_node(name: str) -> None:
    few = graph().index_test[:3]
    spent = spent_budget(clean(graph()), run(make(name), targets=few))
    assert 0 < spent.max_edges_per_injected_node <= 3


def harm(attack: Attack, budget: Budget) -> tuple[float, float]:
    """Loss and share of errors against the model's own clean predictions."""
    perturbed, (_, task) = run(attack, budget=budget), victim_and_task()
    logits = trained()(perturbed.x, perturbed.edge_index)[task.targets]
    errors = (logits.argmax(1) != task.labels).double().mean()
    return F.cross_entropy(logits, task.labels).item(), errors.item()


@pytest.mark.parametrize("name", BY_FEATURES)
def test_an_injection_does_more_harm_than_random_nodes(name: str) -> None:
    budget = Budget(20, 20, (-0.94, 0.94))
    loss, errors = harm(make(name, num_steps=60), budget)
    random_loss, random_errors = harm(make("random"), budget)
    assert loss > random_loss
    assert errors > random_errors


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_FEATURES if "homophily" in options(name)][:2])
def test_similarity_to_the_neighbours_is_raised_by_homophily(name: str) -> None:
    similar = []
    for weight in (0.0, 0.1, 1.0):
        made = run(make(name, homophily=weight, num_steps=60), budget=Budget(5, 6, (-0.94, 0.94)))
        old, new = made.x.split([graph().num_nodes, 5])
        similar.append(F.cosine_similarity(new, neighbourhood(old, made.edge_index, 5)).mean())
    assert similar[0] < similar[1] < 1
    assert similar[2] > similar[0] + 0.3


@pytest.mark.parametrize("name", ["fgsm", "speit"])
def test_the_loss_that_is_named_is_the_one_that_rises(name: str) -> None:
    (_, task), reached = victim_and_task(), []
    for loss in ("cross_entropy", "own_logit"):
        made = run(make(name, loss=loss))
        logits = trained()(made.x, made.edge_index)[task.targets]
        reached.append(logits.gather(1, task.labels[:, None]).mean())
    assert reached[1] < reached[0]


# Modifications


def flips(nodes: float, edges: float, epsilon: float) -> Budget:
    # No injection fits the targets, and none is asked for.
    return Budget(9, 10_000, (-0.94, 0.94), node_ratio=nodes, edge_ratio=edges, epsilon=epsilon)


MODIFICATION_BUDGETS = [
    *((flips(0.0, 0.3, 0.1), 20), (flips(0.3, 0.0, 0.01), 60), (flips(0.8, 0.8, 3.0), 1)),
    # Limits that the clean graph exceeds push nothing further out.
    (Budget(0, 0, (-0.05, 0.05), node_ratio=1.0, edge_ratio=0.2, epsilon=0.02), 60),
]


@pytest.mark.parametrize(("budget", "num_targets"), MODIFICATION_BUDGETS)
@pytest.mark.parametrize("name", names("modification"))
def test_a_modification_stays_within_budget(name: str, budget: Budget, num_targets: int) -> None:
    attack, targets = make(name), graph().index_test[:num_targets]
    assert not broken(attack, run(attack, budget=budget, targets=targets), budget, targets)
    assert not attack.unbounded


@pytest.mark.parametrize(
    "name", sorted(set(names("modification")) & set(names(need="predictions")))
)
def test_a_modification_does_more_harm_than_random_flips(name: str) -> None:
    budget = flips(0.2, 0.3, 0.1)
    assert harm(make(name), budget)[0] > harm(make("random_flip"), budget)[0]
