from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.attacks import TDGIA, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.injection.edge_allocation import defect_score, spread_over_classes
from robust_diffusion.data.sources import citation_like_graph
from tests.attacks import contract
from tests.attacks.contract import clean
from tests.attacks.graphs import mean_of_neighbours


def run(budget: tuple[int, int], limits: Any = (-0.94, 0.94), **options: Any) -> PerturbedGraph:
    given = {key: options.pop(key) for key in ("data", "targets") if key in options}
    attack, allowed = TDGIA(num_steps=0, **options), Budget(*budget, limits)
    return contract.run(attack, model=mean_of_neighbours, budget=allowed, **given)


def edges_of_new_nodes(perturbed: PerturbedGraph) -> list[list[int]]:
    src, dst = perturbed.edge_index
    new = range(perturbed.num_original_nodes, perturbed.x.size(0))
    return [dst[src == node].tolist() for node in new]


def feature_range(perturbed: PerturbedGraph) -> tuple[float, float]:
    injected = perturbed.x[perturbed.num_original_nodes :]
    return injected.min().item(), injected.max().item()


@pytest.mark.parametrize("batch_ratio", [0.01, 0.34, 1.0])
@pytest.mark.parametrize("budget", [(7, 3), (3, 60)])
def test_strict_spends_every_edge(budget: tuple[int, int], batch_ratio: float) -> None:
    neighbours = edges_of_new_nodes(run(budget, batch_ratio=batch_ratio))
    assert [len(row) for row in neighbours] == [budget[1]] * budget[0]
    assert all(len(set(row)) == len(row) for row in neighbours)


def test_grb_spends_54_percent_on_cora() -> None:
    wide = citation_like_graph(900, 1800, 7)
    targets = wide.index_test[:268]  # as many as Cora's easy test set has
    options = {"variant": "grb", "batch_ratio": 0.2}
    perturbed = run((50, 50), data=clean(wide), targets=targets, **options)
    neighbours = edges_of_new_nodes(perturbed)
    # A batch of 10 nodes hands out each of the 268 targets once.
    assert [len(row) for row in neighbours] == ([50] * 5 + [18] + [0] * 4) * 5
    for start in range(0, 50, 10):
        batch = [node for row in neighbours[start : start + 10] for node in row]
        assert sorted(batch) == targets.tolist()
    assert spent_budget(wide, perturbed).injected_edges == 1340


@pytest.mark.parametrize("limits", [(-0.04, 1.0), (-1.0, 0.04), (0.2, 0.9)])
def test_only_strict_stays_within_asymmetric_limits(limits: tuple[float, float]) -> None:
    low, high = limits
    lowest, highest = feature_range(run((10, 5), limits=limits))
    assert low <= lowest < low + 0.05
    assert high - 0.05 < highest <= high
    lowest, highest = feature_range(run((10, 5), limits=limits, variant="grb"))
    # GRB: the upper limit times a sine.
    assert lowest == pytest.approx(-high, abs=0.05)
    assert highest == pytest.approx(high, abs=0.05)


@pytest.mark.parametrize(
    ("s", "degree_plus_one", "m", "expected"),
    [(2.5, 4.0, 9, 0.9 * 2.5 / 4 + 0.1 * 2.5 / 6), (2.0, 1.0, 1, 2.0), (3.0, 2.0, 50, 1.35 + 0.03)],
)
def test_defect_score(s: float, degree_plus_one: float, m: int, expected: float) -> None:
    score = defect_score(torch.tensor([s]), torch.tensor([degree_plus_one]), m)
    assert score.item() == pytest.approx(expected)


def greedy_spread(labels: list[int]) -> list[int]:
    """Positions, taken again and again from the class with the smallest used share."""
    queues = {label: [i for i, own in enumerate(labels) if own == label] for label in set(labels)}
    used = dict.fromkeys(sorted(queues), 0)
    order = []
    while len(order) < len(labels):
        left = [label for label in used if used[label] < len(queues[label])]
        label = min(left, key=lambda own: Fraction(used[own], len(queues[own])))
        order.append(queues[label][used[label]])
        used[label] += 1
    return order


@settings(max_examples=60)
@given(labels=st.lists(st.sampled_from([0, 1, 2, 5]), min_size=1, max_size=50))
def test_spread_equals_the_greedy_loop(labels: list[int]) -> None:
    nodes = torch.arange(len(labels)) * 3 + 100
    spread = spread_over_classes(nodes, torch.tensor(labels))
    assert spread.tolist() == nodes[greedy_spread(labels)].tolist()
