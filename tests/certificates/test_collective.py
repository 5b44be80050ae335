from collections.abc import Iterator
from itertools import combinations, permutations, product

import networkx as nx
import numpy as np
import pytest
import torch

from robust_diffusion import certify
from robust_diffusion.certificates import BiSmoothing
from robust_diffusion.certificates.collective import Reach, most_changed
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.models import GCN
from tests.certificates.test_schemes import by_deletions

N, EDGES, P_E, P_N = 4, frozenset({(0, 1), (1, 2), (0, 2), (2, 3)}), 0.8, 0.3


def reach(p_e: float = P_E, p_n: float = P_N) -> Reach | None:
    edges = torch.tensor(sorted(EDGES)).T
    both = torch.cat([edges, edges.flip(0)], 1)
    return Reach.of(both, N, torch.arange(N), p_e, p_n)


def attacks(nodes: int, most: int) -> Iterator[frozenset[tuple[int, int]]]:
    """All ways to inject nodes with edges to nodes of the graph, joined with each other or not."""
    rows = [rest for size in range(most + 1) for rest in combinations(range(N), size)]
    for chosen in product(rows, repeat=nodes):
        edges = {(u, N + i) for i, row in enumerate(chosen) for u in row}
        yield frozenset(EDGES | edges)
        if nodes == 2:
            yield frozenset(EDGES | edges | {(N, N + 1)})


def by_component(edges: frozenset[tuple[int, int]], nodes: int, seed: int) -> np.ndarray:
    """Class probabilities of a smoothed classifier whose class is a function of the component."""
    probability = np.zeros((N, 3))
    for noisy, p in by_deletions(edges, nodes, P_E, P_N).items():
        graph = nx.Graph(noisy)
        graph.add_nodes_from(range(nodes))
        for v in range(N):
            part = graph.subgraph(nx.node_connected_component(graph, v))
            key = [seed, v, *sorted(10 * min(e) + max(e) for e in part.edges)]
            draw = np.random.default_rng(key).random()
            probability[v, 0 if draw < 0.85 and max(part) < N else 1 if max(part) < N else 2] += p
    return probability


@pytest.mark.parametrize(("nodes", "most"), [(1, 2), (2, 1)])
def test_no_attack_changes_more_targets_than_the_bound(nodes: int, most: int) -> None:
    clean = by_component(EDGES, N, 0)
    ordered = np.sort(clean, 1)
    # Gaps so small that some attack changes some target.
    shrunk = clean - 0.97 * (ordered[:, -1] - ordered[:, -2])[:, None] * np.eye(3)[clean.argmax(1)]
    gaps = np.sort(shrunk, 1)[:, -1] - np.sort(shrunk, 1)[:, -2]
    bounds = reach()
    assert bounds is not None
    everyone = np.ones(N, dtype=bool)
    bound = most_changed(bounds, gaps, everyone, nodes, most)
    changed = []
    for edges in attacks(nodes, most):
        attacked = by_component(edges, N + nodes, 0) + shrunk - clean
        changed.append(int((attacked.argmax(1) != shrunk.argmax(1)).sum()))
    assert 0 < max(changed) <= bound <= N


@pytest.mark.parametrize(("p_e", "p_n"), [(0.8, 0.3), (0.9, 0.0), (0.5, 0.6)])
def test_walks_bound_the_probability_of_a_path(p_e: float, p_n: float) -> None:
    bounds = reach(p_e, p_n)
    assert bounds is not None
    for u in range(N):
        exact = np.zeros(N)
        for noisy, p in by_deletions(EDGES | {(u, N)}, N + 1, p_e, p_n).items():
            graph = nx.Graph(noisy)
            graph.add_nodes_from(range(N + 1))
            joined = nx.node_connected_component(graph, N) - {N}
            exact[list(joined)] += p
        bound = bounds.of_target.toarray()[:, u] + bounds.small
        assert (exact <= bound + 1e-12).all()
        assert bound[u] == pytest.approx((1 - p_n) ** 2 * (1 - p_e), rel=0.1)


def test_walks_without_a_finite_sum_bound_nothing() -> None:
    assert reach(p_e=0.0, p_n=0.0) is None


@pytest.mark.parametrize(
    ("size", "p_e", "bounded"), [(2, 0.0, False), (2, 0.1, True), (4, 0.3, False)]
)
def test_many_equal_eigenvalues_are_told_apart(size: int, p_e: float, *, bounded: bool) -> None:
    edges = torch.tensor(
        [e for k in range(100) for e in permutations(range(size * k, size * k + size), 2)]
    ).T
    found = Reach.of(edges, 100 * size, torch.arange(3), p_e, 0.0)
    q, dense = 1 - p_e, np.ones((size, size)) - np.eye(size)
    matrix = np.eye(size) - q * dense + q**2 * (size - 2) * np.eye(size)
    assert (found is not None) == bounded == bool(np.linalg.eigvalsh(matrix)[0] > 1e-3)


def test_a_report_bounds_one_attacker_of_all_targets() -> None:
    data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
    torch.manual_seed(0)
    scheme = BiSmoothing(p_e=0.9, p_n=0.3, samples=200, budgets=(1, 8), edges=(4,), alpha=0.1)
    report = certify(
        GCN(16, 8, out_channels=7), data, certificate=scheme, targets="all", progress=False
    )
    collective = report.curve()["collective"]
    assert report.curve()["certified"][2] == 0 < collective[2] < collective[0]
    assert "collective" in str(report)
    assert '"collective"' in report.to_json()
