"""What every modification attack under conf/attack keeps to."""

import pytest

from robust_diffusion.attacks import Attack, Budget
from tests.attacks.contract import broken, graph, harm, make, names, run

NAMES = names("modification")
LIMITS = (-0.94, 0.94)


def budget(nodes: float = 0.2, edges: float = 0.3, epsilon: float = 0.1) -> Budget:
    # No injection fits the targets, and none is asked for.
    return Budget(9, 10_000, LIMITS, node_ratio=nodes, edge_ratio=edges, epsilon=epsilon)


@pytest.fixture(scope="module", params=NAMES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


@pytest.mark.parametrize(
    ("nodes", "edges", "num_targets", "epsilon"),
    [
        *((0.0, 0.3, 20, 0.1), (0.3, 0.0, 60, 0.01), (0.05, 0.05, 20, 3.0)),
        *((0.8, 0.8, 1, 0.1), (1.0, 1.0, 60, 0.1)),
    ],
)
def test_stays_within_budget(
    attack: Attack, nodes: float, edges: float, num_targets: int, epsilon: float
) -> None:
    targets, allowed = graph().index_test[:num_targets], budget(nodes, edges, epsilon)
    assert not broken(attack, run(attack, budget=allowed, targets=targets), allowed, targets)
    assert not attack.unbounded


def test_limits_that_the_clean_graph_exceeds_push_nothing_further_out(attack: Attack) -> None:
    narrow = Budget(0, 0, (-0.05, 0.05), node_ratio=1.0, edge_ratio=0.2, epsilon=0.02)
    assert not broken(attack, run(attack, budget=narrow), narrow)


@pytest.mark.parametrize("name", sorted(set(NAMES) & set(names(need="predictions"))))
def test_does_more_harm_than_random_flips(name: str) -> None:
    loss, random_loss = (harm(run(make(of), budget=budget()))[0] for of in (name, "random_flip"))
    assert loss > random_loss
