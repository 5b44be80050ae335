"""Regions around nodes, and their packing into passes."""

import torch

from robust_diffusion.attacks.regions import Regions, pack
from robust_diffusion.data.sources import citation_like_graph


def test_regions_hold_the_targets_within_some_hops() -> None:
    data = citation_like_graph(num_nodes=100, num_edges=150, num_features=4)
    targets = torch.arange(0, 100, 2)
    adjacency = torch.eye(100)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    two_hops = adjacency @ adjacency
    regions = Regions(data.edge_index, targets, 100)
    for node in range(100):
        near = two_hops[node, targets].nonzero()[:, 0].tolist()
        assert regions.around([node], 2) == set(near)


def test_regions_of_several_nodes_are_united() -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    regions = Regions(edges, torch.arange(4), 5)
    assert regions.around([0, 3], 1) == {0, 1, 2, 3}
    assert regions.around([4], 1) == set()


def test_pack_separates_regions_that_share_a_target() -> None:
    regions = [{i % 7, (3 * i + 1) % 7} for i in range(20)]
    passes = pack(regions)
    assert sorted(i for members in passes for i in members) == list(range(20))
    for members in passes:
        assert sum(len(regions[i]) for i in members) == len(
            set().union(*map(regions.__getitem__, members))
        )


def test_pack_limits_the_changes_of_a_pass() -> None:
    assert pack([{i} for i in range(5)], most=2) == [[0, 1], [2, 3], [4]]
