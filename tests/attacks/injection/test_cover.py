"""Covers: edges placed by the targets that each is seen to misclassify."""

import torch

from robust_diffusion.attacks import Budget, GradientInjection, PerturbedGraph
from robust_diffusion.attacks.injection.cover import Cover, Reading, best_ends, cover
from robust_diffusion.attacks.injection.part import Injection
from tests.attacks.contract import right, victim_and_task


def reading(**lost: set[int]) -> dict[int, Reading]:
    return {int(end[1:]): Reading(frozenset(nodes), 0.0) for end, nodes in lost.items()}


def test_best_ends_misclassify_most_targets_not_covered_yet() -> None:
    some = reading(e0={0, 1}, e1={1, 2}, e2={3}, e3={0})
    assert best_ends(some, frozenset(), 2) == [0, 1]
    assert best_ends(some, frozenset({2}), 2) == [0, 2]


def test_ties_go_to_ends_that_are_not_covered_and_gain_more() -> None:
    none = {end: Reading(frozenset(), gain) for end, gain in enumerate((0.3, 0.1, 0.2))}
    assert best_ends(none, frozenset({0}), 3) == [2, 1, 0]


def test_a_cover_chooses_again_what_later_nodes_make_useless() -> None:
    """The greedy first choice, 0 to 3, is covered by the two other vectors with one more each."""
    first = reading(e0={0, 1, 2, 3})
    others = reading(e1={0, 1, 4}), reading(e2={2, 3, 5})
    nodes = cover([first, *others], frozenset(), [1, 1])
    assert sorted(nodes) == [(1, [1]), (2, [2])]


def test_few_edges_misclassify_more_than_by_gradient_at_random_targets() -> None:
    victim, task = victim_and_task()
    budget = Budget(4, 3, (-0.94, 0.94))
    generator = torch.Generator().manual_seed(0)
    part = Cover("white box: cover", victim, victim, task, budget, 24, generator)
    found = part.improve(Injection.empty(task, budget))
    assert found.placement.chosen.sum(1).tolist() == [3] * 4
    plain = GradientInjection(edges="equal", num_steps=120)(victim, task, budget, generator)
    assert right(PerturbedGraph(*found.graph(task), len(task.x))) < right(plain)
