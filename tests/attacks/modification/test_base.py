"""Small sets of undirected pairs, and edge lists of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.modification import base as pairs_module
from robust_diffusion.attacks.modification.base import (
    TargetPairs,
    edges_at,
    feature_range,
    flip,
    flipped,
)
from tests.graphs import both_ways

N = 9
ALL_PAIRS = [(u, v) for u in range(N) for v in range(u + 1, N)]
graphs = st.sets(st.sampled_from(ALL_PAIRS))
node_sets = st.sets(st.integers(0, N - 1), min_size=1)


def as_set(pairs: Tensor) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in pairs.T.tolist()}


@given(before=graphs, after=graphs)
def test_flip_and_flipped_agree(before: set[tuple[int, int]], after: set[tuple[int, int]]) -> None:
    pairs = flipped(both_ways(before), both_ways(after), N)
    assert as_set(pairs) == before ^ after
    assert as_set(flip(both_ways(before), pairs, N)) == after


def test_the_range_of_features_is_epsilon_within_the_limits() -> None:
    clean = torch.tensor([[0.0, 0.95, 2.0, -2.0]])
    low, high = feature_range(clean, Budget(0, 0, (-1.0, 1.0), epsilon=0.1))
    torch.testing.assert_close(low, torch.tensor([[-0.1, 0.85, 1.9, -2.0]]))
    torch.testing.assert_close(high, torch.tensor([[0.1, 1.0, 2.0, -1.9]]))


@given(edges=graphs, targets=node_sets)
def test_edges_at_the_targets(edges: set[tuple[int, int]], targets: set[int]) -> None:
    found = edges_at(torch.tensor(sorted(targets)), both_ways(edges), N)
    assert as_set(found) == {pair for pair in edges if targets & set(pair)}
    assert found.size(1) == len(as_set(found))


@given(targets=node_sets)
def test_pairs_are_numbered_one_to_one(targets: set[int]) -> None:
    pairs = TargetPairs(torch.tensor(sorted(targets)), N)
    expected = {pair for pair in ALL_PAIRS if targets & set(pair)}
    assert pairs.total == len(expected)
    assert as_set(pairs[torch.arange(pairs.total)]) == expected


@pytest.mark.parametrize("listed", [2**20, 0], ids=["listed", "drawn"])
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_absent_pairs_are_drawn(listed: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "MAX_LISTED", listed)
    edges = {(0, 1), (1, 2), (3, 8), (5, 6)}
    targets = torch.tensor([1, 8, 4])
    drawn = TargetPairs(targets, N).draw_absent(
        count, both_ways(edges), torch.Generator().manual_seed(0)
    )
    possible = {pair for pair in ALL_PAIRS if set(pair) & {1, 4, 8}} - edges
    assert drawn.size(1) == len(as_set(drawn)) == min(count, len(possible))
    assert as_set(drawn) <= possible


@pytest.mark.parametrize("listed", [2**20, 0], ids=["listed", "drawn"])
def test_pairs_that_do_not_fit_are_left_out(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "MAX_LISTED", listed)
    pairs, generator = TargetPairs(torch.tensor([0, 4]), N), torch.Generator().manual_seed(0)
    no_edges = both_ways(set())
    even = pairs.draw_absent(99, no_edges, generator, lambda p: p.sum(0) % 2 == 0)
    assert as_set(even) == {(u, v) for u, v in ALL_PAIRS if {u, v} & {0, 4} and (u + v) % 2 == 0}
    none = pairs.draw_absent(5, no_edges, generator, lambda p: p[0] < 0)
    assert none.size(1) == 0
