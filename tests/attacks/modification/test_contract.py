"""What every modification attack under conf/attack keeps to."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import undirected_edge_numbers
from tests.attacks.contract import clean, graph, make, names, run, trained

NAMES = names("modification")
LIMITS = (-0.94, 0.94)


def budget(*, nodes: float = 0.2, edges: float = 0.3, epsilon: float = 0.1) -> Budget:
    # No injection fits the targets, and none is asked for.
    return Budget(9, 10_000, LIMITS, node_ratio=nodes, edge_ratio=edges, epsilon=epsilon)


@pytest.fixture(scope="module", params=NAMES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


def touching(edge_index: Tensor, targets: Tensor) -> Tensor:
    """Undirected edges with a target among their ends."""
    half = edge_index[:, edge_index[0] < edge_index[1]]
    return half[:, torch.isin(half, targets).any(0)]


def flips(perturbed: PerturbedGraph) -> Tensor:
    """The undirected pairs that are edges in one of the two graphs alone."""
    n = graph().num_nodes
    before, after = (
        undirected_edge_numbers(graph().edge_index, n),
        undirected_edge_numbers(perturbed.edge_index, n),
    )
    ids = torch.cat([before, after])
    values, counts = ids.unique(return_counts=True)
    once = values[counts == 1]
    return torch.stack([once // n, once % n])


def check_within(perturbed: PerturbedGraph, budget: Budget, targets: Tensor) -> None:
    changed = perturbed.x != graph().x
    assert perturbed.x.shape == graph().x.shape
    assert perturbed.num_original_nodes == graph().num_nodes
    flipped, there = flips(perturbed), touching(graph().edge_index, targets)
    assert flipped.size(1) <= budget.edge_ratio * there.size(1)
    assert torch.isin(flipped, targets).any(0).all()
    nodes = changed.any(1).nonzero().squeeze(1)
    assert nodes.numel() <= budget.node_ratio * targets.numel()
    assert torch.isin(nodes, targets).all()
    low, high = torch.tensor(budget.limits)
    x, clean_x = perturbed.x[changed], graph().x[changed]
    assert (x >= low.minimum(clean_x)).all()
    assert (x <= high.maximum(clean_x)).all()


@pytest.mark.parametrize(
    ("nodes", "edges", "num_targets"),
    [(0.0, 0.3, 20), (0.3, 0.0, 60), (0.05, 0.05, 20), (0.8, 0.8, 1), (1.0, 1.0, 60)],
)
def test_stays_within_budget(attack: Attack, nodes: float, edges: float, num_targets: int) -> None:
    targets = graph().index_test[:num_targets]
    allowed = budget(nodes=nodes, edges=edges)
    check_within(run(attack, budget=allowed, targets=targets), allowed, targets)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 3.0])
def test_features_stay_within_epsilon(attack: Attack, epsilon: float) -> None:
    spent = spent_budget(clean(graph()), run(attack, budget=budget(epsilon=epsilon)))
    assert spent.largest_feature_change <= epsilon + 1e-6
    assert not attack.unbounded


def test_limits_that_the_clean_graph_exceeds_push_nothing_further_out(attack: Attack) -> None:
    narrow = Budget(0, 0, (-0.05, 0.05), node_ratio=1.0, edge_ratio=0.2, epsilon=0.02)
    perturbed, targets = run(attack, budget=narrow), graph().index_test
    check_within(perturbed, narrow, targets)
    limits = {"feature_limits": narrow.limits, "node_ratio": 1.0, "epsilon": 0.02}
    assert not audit(graph(), perturbed, kind="modification", target_nodes=targets, **limits)


def harm(perturbed: PerturbedGraph) -> float:
    """Loss against the model's own clean predictions."""
    targets = graph().index_test
    labels = trained()(graph().x, graph().edge_index).argmax(1)[targets]
    return F.cross_entropy(trained()(perturbed.x, perturbed.edge_index)[targets], labels).item()


@pytest.mark.parametrize("name", sorted(set(NAMES) & set(names(need="predictions"))))
def test_does_more_harm_than_random_flips(name: str) -> None:
    assert harm(run(make(name), budget=budget())) > harm(run(make("random_flip"), budget=budget()))
