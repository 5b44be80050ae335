from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import TDGIA, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.base import Classifier
from robust_diffusion.attacks.injection.sharing import defect_score, spread_over_classes
from robust_diffusion.data.sources import citation_like_graph
from tests.attacks.contract import clean
from tests.attacks.graphs import mean_of_neighbours, small_graph, trained_gcn


@pytest.fixture(scope="module")
def graph() -> Data:
    return small_graph()


def run(
    graph: Data,
    budget: tuple[int, int],
    *,
    targets: Tensor | None = None,
    model: Classifier = mean_of_neighbours,
    limits: tuple[float, float] = (-0.94, 0.94),
    **options: Any,
) -> PerturbedGraph:
    attack = TDGIA(**{"num_steps": 0} | options)
    targets = graph.index_test if targets is None else targets
    generator = torch.Generator().manual_seed(0)
    return attack(model, clean(graph), targets, Budget(*budget, limits), generator)


def edges_of_new_nodes(perturbed: PerturbedGraph) -> list[list[int]]:
    """The neighbours of each injected node."""
    src, dst = perturbed.edge_index
    new = range(perturbed.num_original_nodes, perturbed.x.size(0))
    return [dst[src == node].tolist() for node in new]


def feature_range(perturbed: PerturbedGraph) -> tuple[float, float]:
    injected = perturbed.x[perturbed.num_original_nodes :]
    return injected.min().item(), injected.max().item()


@pytest.mark.parametrize("batch_ratio", [0.01, 0.2, 0.34, 1.0])
@pytest.mark.parametrize("budget", [(7, 3), (10, 59), (3, 60)])
def test_strict_spends_every_edge(graph: Data, budget: tuple[int, int], batch_ratio: float) -> None:
    neighbours = edges_of_new_nodes(run(graph, budget, batch_ratio=batch_ratio))
    assert [len(row) for row in neighbours] == [budget[1]] * budget[0]
    assert all(len(set(row)) == len(row) for row in neighbours)


@pytest.fixture(scope="module")
def wide() -> tuple[Data, Tensor]:
    """As many targets as Cora's easy test set has."""
    graph = citation_like_graph(900, 1800, 7)
    return graph, graph.index_test[:268]


def test_grb_spends_54_percent_on_cora(wide: tuple[Data, Tensor]) -> None:
    graph, targets = wide
    perturbed = run(graph, (50, 50), targets=targets, variant="grb", batch_ratio=0.2)
    neighbours = edges_of_new_nodes(perturbed)
    # A batch of 10 nodes hands out each of the 268 targets once.
    assert [len(row) for row in neighbours] == ([50] * 5 + [18] + [0] * 4) * 5
    for start in range(0, 50, 10):
        batch = [node for row in neighbours[start : start + 10] for node in row]
        assert sorted(batch) == targets.tolist()
    assert spent_budget(graph, perturbed).injected_edges == 1340


def test_both_variants_agree_where_there_are_targets_enough(graph: Data) -> None:
    strict, grb = (run(graph, (10, 5), variant=variant) for variant in ("strict", "grb"))
    assert torch.equal(strict.edge_index, grb.edge_index)
    torch.testing.assert_close(strict.x, grb.x)


@pytest.mark.parametrize("limits", [(-0.04, 1.0), (-1.0, 0.04), (0.2, 0.9)])
def test_only_strict_stays_within_limits_that_are_not_symmetric(
    graph: Data, limits: tuple[float, float]
) -> None:
    low, high = limits
    lowest, highest = feature_range(run(graph, (10, 5), limits=limits))
    assert low <= lowest < low + 0.05
    assert high - 0.05 < highest <= high
    lowest, highest = feature_range(run(graph, (10, 5), limits=limits, variant="grb"))
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


def test_sure_predictions_are_chosen_where_all_degrees_are_equal() -> None:
    n = 30
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    sure = torch.randperm(n, generator=torch.Generator().manual_seed(0)) / n
    graph = Data(
        x=torch.stack([sure, torch.zeros(n)], 1), edge_index=torch.cat([ring, ring.flip(0)], 1)
    )
    perturbed = run(graph, (1, 8), targets=torch.arange(n), model=lambda x, _: x)
    assert sorted(edges_of_new_nodes(perturbed)[0]) == sorted(sure.argsort()[-8:].tolist())


@pytest.mark.parametrize(("num_classes", "chosen"), [(5, 0), (30, 2)])
def test_degrees_count_the_node_itself(num_classes: int, chosen: int) -> None:
    # Node 0 has one neighbour and an even guess over the classes, node 2 two and a sure class:
    # s / s is 3 / 2.2 or 3 / 2.03, the other factors 1.46 with degrees plus 1, 1.30 with plus 2
    # and 1.92 without.
    half = torch.tensor([[0, 2, 2], [1, 3, 4]])
    x = torch.zeros(5, num_classes)
    x[2, 0] = 100
    graph = Data(x=x, edge_index=torch.cat([half, half.flip(0)], 1))
    perturbed = run(graph, (1, 1), targets=torch.tensor([0, 2]), model=lambda x, _: x)
    assert edges_of_new_nodes(perturbed) == [[chosen]]


def test_each_new_node_gets_every_class_in_proportion() -> None:
    n = 40
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    labels = torch.randperm(n, generator=torch.Generator().manual_seed(0)) % 4 % 3
    graph = Data(
        x=torch.nn.functional.one_hot(labels, 3).float(),
        edge_index=torch.cat([ring, ring.flip(0)], 1),
    )
    perturbed = run(graph, (5, 8), targets=torch.arange(n), model=lambda x, _: x, batch_ratio=1.0)
    for row in edges_of_new_nodes(perturbed):
        assert labels[row].bincount().tolist() == [4, 2, 2]


def test_rounding_does_not_leave_the_limits() -> None:
    # So many features that some of the sines are exactly 1 or -1.
    limits = (-0.96, 0.48)
    low, high = torch.tensor(limits)
    assert -0.24 + 0.72 * torch.tensor(1.0) > high
    assert -0.24 - 0.72 * torch.tensor(1.0) < low
    graph = Data(x=torch.zeros(2, 100_000), edge_index=torch.tensor([[0, 1], [1, 0]]))
    injected = run(graph, (4, 1), targets=torch.arange(2), limits=limits).x[2:]
    assert low == injected.min()
    assert injected.max() == high


def test_later_batches_leave_earlier_ones_alone(graph: Data) -> None:
    model = trained_gcn(graph)
    one, three = (
        run(graph, (nodes, 5), model=model, batch_ratio=0.34, num_steps=5) for nodes in (1, 3)
    )
    n = graph.num_nodes
    assert torch.equal(three.x[: n + 1], one.x)
    assert edges_of_new_nodes(three)[:1] == edges_of_new_nodes(one)


def test_later_batches_go_where_the_earlier_did_not(graph: Data) -> None:
    def undecided(x: Tensor, edge_index: Tensor) -> Tensor:
        return 0 * x[:, :7]

    n = 20
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    ring_graph = Data(x=torch.zeros(n, 7), edge_index=torch.cat([ring, ring.flip(0)], 1))
    perturbed = run(ring_graph, (4, 5), targets=torch.arange(n), model=undecided, batch_ratio=0.25)
    # Each edge raises a degree, so the nodes without one have the highest score.
    used = [node for row in edges_of_new_nodes(perturbed) for node in row]
    assert sorted(used) == list(range(n))


def test_features_descend_the_margin_loss(graph: Data) -> None:
    model = trained_gcn(graph)
    labels = model(graph.x, graph.edge_index)[graph.index_test].argmax(1)

    def loss(num_steps: int) -> float:
        perturbed = run(
            graph, (12, 20), model=model, num_steps=num_steps, learning_rate=0.1, batch_ratio=1.0
        )
        logits = model(perturbed.x, perturbed.edge_index)[graph.index_test]
        entropy = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return (4 - entropy).relu().square().mean().item()

    losses = [loss(num_steps) for num_steps in (0, 5, 40)]
    assert losses[0] > losses[1] > losses[2]


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
