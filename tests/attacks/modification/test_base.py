import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import coalesce

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.modification.base import (
    edges_at,
    feature_range,
    flip,
    flipped,
    shuffled,
)
from tests.attacks.modification.sets import N, as_set, both_ways, graphs, node_sets


@given(edges=graphs, others=graphs, seed=st.integers(0, 3))
def test_flip_is_the_symmetric_difference(
    edges: set[tuple[int, int]], others: set[tuple[int, int]], seed: int
) -> None:
    pairs = torch.tensor(sorted(others), dtype=torch.long).reshape(-1, 2).T
    turned = torch.rand(pairs.size(1), generator=torch.Generator().manual_seed(seed)) < 0.5
    pairs = torch.where(turned, pairs.flip(0), pairs)
    result = flip(both_ways(edges), pairs, N)
    assert as_set(result) == edges ^ others
    assert result.size(1) == 2 * len(edges ^ others)
    assert torch.equal(coalesce(result), coalesce(result.flip(0)))


@given(before=graphs, after=graphs)
def test_flipped_is_what_flip_takes(
    before: set[tuple[int, int]], after: set[tuple[int, int]]
) -> None:
    pairs = flipped(both_ways(before), both_ways(after), N)
    assert as_set(pairs) == before ^ after
    assert as_set(flip(both_ways(before), pairs, N)) == after


def test_the_range_of_features_is_epsilon_within_the_limits() -> None:
    clean = torch.tensor([[0.0, 0.95, 2.0, -2.0]])
    low, high = feature_range(clean, Budget(0, 0, (-1.0, 1.0), epsilon=0.1))
    torch.testing.assert_close(low, torch.tensor([[-0.1, 0.85, 1.9, -2.0]]))
    torch.testing.assert_close(high, torch.tensor([[0.1, 1.0, 2.0, -1.9]]))


def test_flip_of_nothing_changes_nothing() -> None:
    edges = both_ways({(0, 1), (1, 2)})
    assert flip(edges, torch.empty(2, 0, dtype=torch.long), N) is edges


@given(edges=graphs, targets=node_sets)
def test_edges_at_the_targets(edges: set[tuple[int, int]], targets: set[int]) -> None:
    found = edges_at(torch.tensor(sorted(targets)), both_ways(edges), N)
    assert as_set(found) == {pair for pair in edges if targets & set(pair)}
    assert found.size(1) == len(as_set(found))


def test_shuffled_holds_the_same_columns() -> None:
    columns = torch.arange(40).reshape(2, 20)
    mixed = shuffled(columns, torch.Generator().manual_seed(0))
    assert not torch.equal(mixed, columns)
    assert as_set(mixed) == as_set(columns)
