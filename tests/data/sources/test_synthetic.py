from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree, homophily

from robust_diffusion.data.sources.synthetic import CORA_CLASS_SHARES, citation_like_graph
from robust_diffusion.data.validate import SPLITS
from robust_diffusion.errors import ConfigError


def small(**changes: Any) -> Data:
    return citation_like_graph(
        **{"num_nodes": 200, "num_edges": 400, "num_features": 8, "seed": 3} | changes
    )


@pytest.fixture(scope="module")
def graph() -> Data:
    return citation_like_graph()


def test_it_is_about_like_cora(graph: Data) -> None:
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (2680, 302, 7)
    assert graph.num_edges / 2 == pytest.approx(5148, rel=0.05)
    assert homophily(graph.edge_index, graph.y, method="edge") == pytest.approx(0.81, abs=0.02)
    shares = graph.y.bincount() / graph.num_nodes
    assert shares.tolist() == pytest.approx(CORA_CLASS_SHARES, abs=0.002)
    assert graph.is_undirected()
    assert graph.is_coalesced()
    assert not graph.has_self_loops()
    degrees = degree(graph.edge_index[0], graph.num_nodes)
    assert degrees.max() > 8 * degrees.mean()  # a heavy tail
    assert degrees.median() < degrees.mean()
    assert [graph[f"index_{name}"].numel() for name in SPLITS] == [1608, 268, 804, 268, 268, 268]


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"seed": 4}, ["x", "y", "edge_index", "index_train", "index_test_easy"]),
        ({"num_nodes": 201}, ["x", "y", "edge_index"]),
        ({"num_edges": 401}, ["edge_index"]),
        ({"num_features": 9}, ["x"]),
        ({"homophily": 0.5}, ["edge_index"]),
        ({"degree_exponent": 3.5}, ["edge_index"]),
        ({"feature_signal": 0.5}, ["x"]),
    ],
)
def test_every_argument_changes_the_graph(change: dict[str, Any], keys: list[str]) -> None:
    first, again, other = small(), small(), small(**change)
    for key in keys:
        assert torch.equal(first[key], again[key]), key
        assert not torch.equal(first[key], other[key]), key


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_extreme_homophily_is_exact(share: float) -> None:
    graph = small(homophily=share)
    assert homophily(graph.edge_index, graph.y, method="edge") == share


def test_the_signal_is_the_spread_of_means() -> None:
    graph = citation_like_graph(5000, 1, 50, feature_signal=2.0)
    means = torch.stack([graph.x[graph.y == label].mean(0) for label in range(7)])
    assert means.std().item() == pytest.approx(2, rel=0.15)
    assert (graph.x - means[graph.y]).std().item() == pytest.approx(1, rel=0.02)


def test_a_bad_argument_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.source\.num_nodes=99: "):
        small(num_nodes=99)
