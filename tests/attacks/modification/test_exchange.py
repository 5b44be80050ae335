"""Flips found by trials: the tournament, its matching, credits, and what they add up to."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch

from robust_diffusion.attacks import AutoModification, Budget
from robust_diffusion.attacks.modification.base import flip
from robust_diffusion.attacks.modification.constants import FLIPS
from robust_diffusion.attacks.modification.exchange import (
    FlipSearch,
    at_random,
    by_gradient,
    heaviest_matching,
    helpful,
    perfect_matchings,
)
from robust_diffusion.attacks.regions import Regions, pack
from tests.attacks.contract import graph, right, run, victim_and_task
from tests.attacks.graphs import mean_of_neighbours


def search(model: Any = None) -> FlipSearch:
    victim, task = victim_and_task(model)
    return FlipSearch(victim, task, task.x, 20, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_perfect_matchings_hold_each_pair_once(count: int) -> None:
    matchings = list(perfect_matchings(torch.arange(count) + 5))
    pairs = [tuple(sorted(pair)) for match in matchings for pair in match.T.tolist()]
    assert sorted(pairs) == list(combinations(range(5, 5 + count), 2))
    for match in matchings:
        assert max(Counter(match.flatten().tolist()).values(), default=1) == 1


def test_a_tournament_tries_all_pairs_without_an_edge() -> None:
    found = search()
    start = found.judge(graph().edge_index[:, :0])
    measured = found.tournament(start, most_passes=1000)
    edges, right = graph().edge_index, found.task.targets[start.margins <= 0]
    inside = int(torch.isin(edges, right).all(0).sum()) // 2
    assert measured.pairs.size(1) == right.numel() * (right.numel() - 1) // 2 - inside
    new = flip(edges, found.task.targets[measured.pairs], graph().num_nodes)
    assert new.size(1) == edges.size(1) + 2 * measured.pairs.size(1)


def test_heaviest_matching_prefers_two_pairs_to_the_heaviest_one() -> None:
    weights = {(0, 1): 2.0, (1, 2): 3.0, (2, 3): 2.0}
    assert heaviest_matching(weights) == [(0, 1), (2, 3)]


def test_matched_pairs_lose_both_ends() -> None:
    found = search()
    start = found.judge(graph().edge_index[:, :0])
    made = found.matched(start, found.tournament(start, most_passes=1000))
    lost = int((made.margins > 0).sum() - (start.margins > 0).sum())
    assert lost == 2 * made.pairs.size(1) > 2


def test_flip_effects() -> None:
    """A model that sees one hop shifts the ends of a flip alone."""
    found = search(mean_of_neighbours)
    there = found.judge(graph().edge_index[:, graph().edge_index[0] < graph().edge_index[1]][:, :9])
    new = torch.stack([graph().index_test[:30], graph().index_test[30:]])
    pairs = [tuple(pair) for pair in torch.cat([new, there.pairs], 1).T.tolist()]
    regions = Regions(graph().edge_index, graph().index_test, graph().num_nodes)
    areas = {pair: regions.around(pair, hops=1) for pair in pairs}
    tried = [pairs[i] for i in pack(list(areas.values()))[0]]
    _, credit = found.credited(there, tried, areas)
    assert len(tried) > 5
    for pair in tried:
        _, single = found.credited(there, [pair], areas)
        assert credit[pair] == pytest.approx(single[pair], abs=1e-4)


def test_helpful_flips_fill_the_room_and_then_replace_the_least_missed() -> None:
    new, back = [(0, 1), (0, 2), (0, 3), (0, 4)], [(5, 6), (5, 7), (5, 8)]
    gains = [1.0, 3.0, 2.0, 0.5], [-2.5, -0.1, -1.5]
    credit = dict(zip(new + back, gains[0] + gains[1], strict=True))
    assert helpful(new, back, credit, room=1) == [(0, 2), (0, 3), (5, 7)]


def test_flips_in_pairs_beat_the_plan_of_version_6() -> None:
    """That one leaves 45 targets with 15 flips, with these steps and either seed."""
    found = run(AutoModification(num_steps=30), budget=Budget(0, 0, (-0.94, 0.94), edge_ratio=0.1))
    assert right(found) <= 43


def alone(most: int) -> FlipSearch:
    """A search at one correctly classified target."""
    victim, task = victim_and_task()
    correct = victim.clean_logits[task.targets].argmax(1) == task.labels
    task = replace(task, targets=task.targets[correct][:1])
    generator = torch.Generator().manual_seed(0)
    return FlipSearch(victim, task, task.x, most, generator, [victim])


def test_flips_of_the_largest_gradient_touch_a_target() -> None:
    found = alone(2)
    start = found.judge(graph().edge_index[:, :0])
    pairs = by_gradient(found.victim, found.task, found.x, start, found.generator)
    assert 0 < pairs.size(1) < FLIPS.proposed
    assert (pairs == found.task.targets).any(0).all()


def test_an_exchange_at_one_target_swaps_flips_of_a_spent_budget() -> None:
    found = alone(2)
    none = found.judge(graph().edge_index[:, :0])
    flips = at_random(found.task, found.x, none, found.generator).T
    poor = max((found.judge(pair[:, None]) for pair in flips), key=lambda flips: flips.rank)
    found.most = 1
    assert found.exchange(poor, found.tournament(none, 1), patience=9).rank < poor.rank
