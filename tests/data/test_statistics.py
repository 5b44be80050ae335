import math

import numpy as np
import pytest
import scipy.sparse as sp
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.statistics import statistics
from robust_diffusion.data.validate import build_graph
from tests.data.files import EDGES, NUM_NODES, raw_graph, splits, symmetric


def served(difficulty: str = "easy", **changes: object) -> GraphDataModule:
    graph: Data = build_graph(**raw_graph(**changes), where="ring")
    return GraphDataModule(lambda: graph, name="ring", difficulty=difficulty)  # type: ignore[arg-type]


def test_the_range_is_that_of_the_normalised_features() -> None:
    raw = raw_graph()["features"].astype(np.float32).astype(float)
    normalised = 2 / math.pi * np.arctan((raw - raw.mean()) / raw.std())
    expected = (normalised.min(), normalised.max())
    found = statistics(served())
    assert found.feature_range == pytest.approx(expected, rel=1e-6)
    assert (found.nodes, found.edges) == (NUM_NODES, len(EDGES))
    assert (found.features, found.classes) == (3, 4)


def test_homophily_is_the_share_inside_a_class() -> None:
    labels = np.arange(NUM_NODES) % 4
    labels[1] = 0  # so that edge 0-1 is inside a class
    inside = sum(labels[u] == labels[v] for u, v in EDGES)
    assert inside > 0
    found = statistics(served(labels=labels))
    assert found.homophily == pytest.approx(inside / len(EDGES))


@pytest.mark.parametrize(("difficulty", "share"), [("easy", 1 / 3), ("full", 4 / 9)])
def test_the_largest_class_is_of_the_targets(difficulty: str, share: float) -> None:
    labels = np.arange(NUM_NODES) % 4
    labels[14] = 3  # of nodes 11 to 19, now four are of class 3
    assert (labels[splits()["test"]] == 3).sum() == 4
    assert statistics(served(difficulty, labels=labels)).largest_class == pytest.approx(share)


def test_a_graph_without_edges_can_be_counted() -> None:
    found = statistics(served(adjacency=sp.csr_array((NUM_NODES, NUM_NODES))))
    assert found.edges == 0
    assert math.isnan(found.homophily)


def test_the_split_is_told_apart() -> None:
    first, same = statistics(served()), statistics(served(adjacency=symmetric(EDGES[:5])))
    other = statistics(served(splits=splits(val=np.arange(8, 10))))
    assert first.split == same.split != other.split
