"""A seeded citation-like graph, for runs without data files."""

from typing import Annotated

import numpy as np
import scipy.sparse as sp
from annotated_types import Ge, Gt
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.checks import Count, Natural, NonNegative, Share, validated
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import build_graph

CORA_CLASS_SHARES = (0.130, 0.081, 0.154, 0.302, 0.157, 0.110, 0.066)


@validated("dataset.source")
def citation_like_graph(
    num_nodes: Annotated[int, Ge(100)] = 2680,
    num_edges: Count = 5260,
    num_features: Count = 302,
    *,
    homophily: Share = 0.81,
    degree_exponent: Annotated[float, Gt(2)] = 2.5,
    feature_signal: NonNegative = 0.12,
    seed: Natural = 0,
) -> Data:
    """Draw a degree-corrected stochastic block model with class-dependent Gaussian features.

    Size, degrees, class shares and homophily are similar to those of GRB's Cora, and a classifier
    on the features alone is about as accurate as on Cora. The parameters were set without regard to
    any flow, defence or attack.

    Reference: Karrer and Newman 2011, arXiv:1008.3926.

    Args:
        num_nodes: Number of nodes, at least 100.
        num_edges: Number of undirected edges drawn; duplicates and self-loops are dropped.
        num_features: Number of features.
        homophily: Share of the edges drawn inside a class, in [0, 1].
        degree_exponent: Exponent of the power law of the expected degrees, above 2.
        feature_signal: Standard deviation of the class means per feature; that of the noise
            around them is 1.
        seed: Seed of everything drawn, the split included.

    Raises:
        ConfigError: An argument out of range.
    """
    generator = np.random.default_rng(seed)
    num_classes = len(CORA_CLASS_SHARES)
    shares = np.array(CORA_CLASS_SHARES) / sum(CORA_CLASS_SHARES)
    counts = np.floor(shares * num_nodes).astype(int)
    counts[counts.argmax()] += num_nodes - counts.sum()
    labels = generator.permutation(np.repeat(np.arange(num_classes), counts))
    means = generator.normal(scale=feature_signal, size=(num_classes, num_features))
    features = generator.standard_normal((num_nodes, num_features), dtype=np.float32)
    features += means.astype(np.float32)[labels]
    row, col = _edges(generator, labels, num_edges, homophily, degree_exponent)
    adjacency = sp.coo_array((np.ones(row.size), (row, col)), shape=(num_nodes, num_nodes))
    where = "dataset=synthetic"
    graph = build_graph(adjacency, features, labels, {}, where=where, plain_edges=False)
    return split_by_degree(graph, seed, where=where)


def _edges(
    generator: np.random.Generator,
    labels: NDArray[np.int64],
    num_edges: int,
    homophily: float,
    degree_exponent: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the ends of each edge with probability proportional to a node's propensity."""
    propensity = generator.pareto(degree_exponent - 1, labels.size) + 1
    # Nodes are grouped by class, so that a draw within a class is a draw from an interval.
    grouped = np.argsort(labels, kind="stable")
    cumulative = np.concatenate([[0.0], np.cumsum(propensity[grouped])])
    bounds = np.searchsorted(labels[grouped], np.arange(labels.max() + 2))
    low, high = cumulative[bounds[:-1]], cumulative[bounds[1:]]

    def node_at(position: NDArray[np.float64]) -> NDArray[np.int64]:
        index = np.searchsorted(cumulative, position, side="right") - 1
        return grouped[np.minimum(index, labels.size - 1)]

    total = cumulative[-1]
    # Every node cites once before well-connected nodes cite again, so that few are isolated.
    once = generator.permutation(labels.size)[:num_edges]
    again = node_at(generator.uniform(0, total, num_edges - once.size))
    source = np.concatenate([once, again])
    own_low, own_high = low[labels[source]], high[labels[source]]
    inside = own_low + generator.uniform(size=num_edges) * (own_high - own_low)
    # For a position outside the class, draw with its interval cut out, and then shift past it.
    outside = generator.uniform(size=num_edges) * (total - (own_high - own_low))
    outside = np.where(outside >= own_low, outside + (own_high - own_low), outside)
    within = generator.uniform(size=num_edges) < homophily
    target = node_at(np.where(within, inside, outside))
    distinct = source != target
    return source[distinct], target[distinct]
