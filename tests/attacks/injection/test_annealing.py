"""Exchange of single edges, judged on the whole graph."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch_geometric import seed_everything

from robust_diffusion.attacks import Budget, losses
from robust_diffusion.attacks.ensemble import Parts
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.attacks.injection import auto, edge_placement
from robust_diffusion.attacks.injection.annealing import Exchange, differences, directions
from robust_diffusion.attacks.injection.base import draw_targets
from robust_diffusion.attacks.injection.constants import AUTO, Schedule
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Injection
from robust_diffusion.models import APPNP
from robust_diffusion.training.fit_model import fit
from tests.attacks.contract import graph, victim_and_task
from tests.backends import needs_compiler

BUDGET = Budget(4, 6, (-0.94, 0.94))
SCHEDULE = Schedule(20, 0.05, 0.005, 1.0, 0.1)


def start(budget: Budget = BUDGET) -> tuple[Exchange, Injection]:
    """Random edges and features at the targets of a trained APPNP."""
    seed_everything(0)
    data = graph()
    model = APPNP(data.num_features, 16, out_channels=int(data.y.max()) + 1)
    fit(model, data, max_epochs=60)
    victim, task = victim_and_task(model)
    victim.__enter__()
    generator = torch.Generator().manual_seed(0)
    rows = draw_targets(task.targets, budget.injected_degrees, generator)
    placement = Placement.of(task, rows, budget.injected_degrees, 0)
    features = task.x[: len(rows)].clamp(*budget.limits)
    arguments = "white box: exchange", victim, victim, task, budget, 24, generator
    exchange = Exchange(*arguments, features, SCHEDULE)
    return exchange, Injection.at(task, placement, features)


def test_exchanges_do_harm_within_the_budget() -> None:
    exchange, first = start()
    before = first.placement.margins(exchange.judge, exchange.task, first.found.features)
    found = exchange.improve(first)
    assert found.found.right < int((before <= 0).sum())
    assert found.placement.chosen.sum(1).max() <= 6
    assert len(found.found.features) == 4
    low, high = BUDGET.limits
    assert ((found.found.features >= low) & (found.found.features <= high)).all()


def test_graphs_on_which_a_model_diverges_are_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = [], [0]

    def margins(*scores: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        found.append(losses.margins(*scores) * (torch.nan if calls[0] % 3 == 1 else 1))
        return found[-1]

    exchange, first = start()
    monkeypatch.setattr(edge_placement, "margins", margins)
    exchange.improve(first)
    assert calls[0] > 200  # it never stops at NaN


@needs_compiler
def test_some_nodes_oppose_the_others() -> None:
    exchange, _ = start(Budget(10, 6, (-0.94, 0.94)))
    fast = exchange.judge.propagator(exchange.task.targets)
    assert fast is not None
    passes = exchange.judge.forwards
    first, second, again, _ = exchange.opposed(fast)
    assert again is first
    assert exchange.judge.forwards > passes
    assert first.placement.chosen.sum(1).max() <= 6
    labels = exchange.task.labels
    few = [len(labels[row].unique()) == 1 for row in first.placement.chosen]
    assert 0 < sum(few) <= 5
    assert not torch.equal(first.found.features, second.found.features)
    right = [
        int((one.placement.margins(exchange.judge, exchange.task, one.found.features) <= 0).sum())
        for one in (first, second)
    ]
    assert right[0] <= right[1]


@needs_compiler
@pytest.mark.parametrize("one_class", [False, True])
@pytest.mark.parametrize("is_ample", [False, True])
def test_as_many_chains_start_whatever_the_targets(one_class: bool, is_ample: bool) -> None:
    exchange, _ = start(Budget(10, 30 if is_ample else 2, (-0.94, 0.94)))
    task = exchange.task
    if one_class:
        inside = task.labels == task.labels[0]
        task = replace(task, targets=task.targets[inside])
    exchange = replace(exchange, task=task)
    best = task.x, task.edge_index
    parts: Any = Mock(Parts, **vars(exchange) | {"graph": best})
    fast = exchange.judge.propagator(task.targets)
    assert fast is not None
    starts = list(auto._exchange_starts(parts, exchange, fast))
    opposing = is_ample and not one_class
    assert len(starts) == (2 * AUTO.opposed + 1 if opposing else AUTO.chains)
    assert (starts[0].placement.chosen.any() == opposing).item()  # else the best graph, without any


def test_mutations_replace_a_gradient() -> None:
    exchange, first = start()
    exchange = replace(exchange, schedule=replace(SCHEDULE, mutated=0.5))
    found = exchange.improve(first).found
    before = first.placement.margins(exchange.judge, exchange.task, first.found.features)
    assert found.right < int((before <= 0).sum())
    low, high = BUDGET.limits
    assert ((found.features >= low) & (found.features <= high)).all()
    known = torch.cat([exchange.vectors, first.found.features])
    assert not all((known == row).all(1).any() for row in found.features)


def test_differences_of_classes_lie_at_the_limits() -> None:
    exchange, _ = start()
    vectors = differences(exchange.judge, exchange.allowed)
    classes = exchange.judge.clean_logits.argmax(1).unique()
    assert len(vectors) >= len(classes) * (len(classes) - 1)
    assert set(vectors.unique().tolist()) <= {torch.tensor(limit).item() for limit in BUDGET.limits}


def test_the_same_seed_makes_the_same_exchanges() -> None:
    graphs = []
    for _ in range(2):
        exchange, first = start()
        graphs.append(exchange.improve(first).graph(exchange.task))
    assert all(torch.equal(one, two) for one, two in zip(*graphs, strict=True))


def test_an_attacked_graph_is_read_back() -> None:
    exchange, first = start()
    task, budget = exchange.task, exchange.budget
    linked = Placement.of(task, first.placement.rows, [6] * 4, 2)
    attacked = Injection.at(task, linked, first.found.features).graph(task)
    read = Injection.of_graph(task, budget, attacked)
    assert torch.equal(read.placement.chosen, linked.chosen)
    assert torch.equal(read.found.features, first.found.features)
    assert read.placement.capacity.tolist() == [4] * 4  # two of six edges are links
    again = read.placement.edges(task.edge_index)
    assert {*map(tuple, again.T.tolist())} == {*map(tuple, attacked[1].T.tolist())}


def test_directions_lead_to_each_class_within_the_limits() -> None:
    exchange, _ = start()
    fast = exchange.judge.propagator(exchange.task.targets)
    if fast is None:  # no compiler
        return
    generator = torch.Generator().manual_seed(0)
    vectors = directions(fast, exchange.task.x, feature_set(BUDGET), generator)
    assert ((vectors >= BUDGET.limits[0]) & (vectors <= BUDGET.limits[1])).all()
    reached, clean = fast.predictions(vectors), fast.predictions(exchange.task.x)
    assert (reached.max(0).values >= clean.max(0).values).all()
