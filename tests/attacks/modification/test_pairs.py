import pytest
import torch
from hypothesis import given

from robust_diffusion.attacks.modification import pairs as pairs_module
from robust_diffusion.attacks.modification.pairs import TargetPairs
from tests.attacks.modification.sets import ALL_PAIRS, N, as_set, both_ways, node_sets


@given(targets=node_sets)
def test_pairs_are_numbered_one_to_one(targets: set[int]) -> None:
    pairs = TargetPairs(torch.tensor(sorted(targets)), N)
    expected = {pair for pair in ALL_PAIRS if targets & set(pair)}
    assert pairs.total == len(expected)
    assert as_set(pairs[torch.arange(pairs.total)]) == expected


def test_pairs_of_a_large_graph() -> None:
    n, t = 1_000_000, 100_000
    pairs = TargetPairs(torch.arange(n - t, n), n)
    assert pairs.total == t * (t - 1) // 2 + t * (n - t)
    numbers = torch.tensor([0, n - 2, n - 1, pairs.total - 1])
    # Row i of the triangle holds the i-th target's pairs; the last row ends at the last node.
    assert pairs[numbers].tolist() == [
        [n - t, n - t, n - t + 1, n - 1],
        [n - t + 1, n - t - 1, n - t + 2, n - t - 1],
    ]


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


@pytest.mark.slow
@pytest.mark.parametrize("listed", [2**20, 0], ids=["listed", "drawn"])
def test_absent_pairs_are_drawn_uniformly(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "MAX_LISTED", listed)
    pairs, generator = TargetPairs(torch.tensor([0, 4]), N), torch.Generator().manual_seed(0)
    edges, rounds = both_ways({(0, 1), (4, 5)}), 500
    counts = dict.fromkeys(ALL_PAIRS, 0)
    for _ in range(rounds):
        for pair in as_set(pairs.draw_absent(3, edges, generator)):
            counts[pair] += 1
    drawn = [count / rounds for count in counts.values() if count]
    assert len(drawn) == pairs.total - 2
    # Five standard deviations of a binomial's share.
    share = 3 / len(drawn)
    assert drawn == pytest.approx([share] * len(drawn), abs=5 * (share / rounds) ** 0.5)


@pytest.mark.parametrize("listed", [2**20, 0], ids=["listed", "drawn"])
def test_pairs_that_do_not_fit_are_left_out(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "MAX_LISTED", listed)
    pairs, generator = TargetPairs(torch.tensor([0, 4]), N), torch.Generator().manual_seed(0)
    no_edges = both_ways(set())
    even = pairs.draw_absent(99, no_edges, generator, lambda p: p.sum(0) % 2 == 0)
    assert as_set(even) == {(u, v) for u, v in ALL_PAIRS if {u, v} & {0, 4} and (u + v) % 2 == 0}
    none = pairs.draw_absent(5, no_edges, generator, lambda p: p[0] < 0)
    assert none.size(1) == 0
