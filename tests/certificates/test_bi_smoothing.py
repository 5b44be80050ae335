from collections.abc import Callable

import numpy as np
import pytest
import torch

from robust_diffusion.certificates import BiSmoothing, ClassBounds
from robust_diffusion.certificates.bi_smoothing import isolation
from robust_diffusion.certificates.noise import Noise
from tests.certificates.enumerated import (
    Edges,
    by_deletions,
    injected,
    random_classifier,
    smoothed,
)

EDGES: Edges = frozenset({(0, 1), (1, 2)})


def spoilt(classify: Callable[[Edges], int]) -> Callable[[Edges], int]:
    return lambda edges: 2 if any(v >= 3 for _, v in edges) else classify(edges)


@pytest.mark.parametrize(("new", "most"), [(1, 1), (1, 3), (2, 1), (2, 2)])
def test_no_injected_graph_of_a_tiny_instance_breaks_the_bound(new: int, most: int) -> None:
    p_e, p_n = 0.5, 0.7
    scheme, graphs = BiSmoothing(p_e=p_e, p_n=p_n), list(injected(EDGES, 3, new, most))
    noisy = [by_deletions(graph, 3 + new, p_e, p_n) for graph in graphs]
    s = isolation(p_e, p_n, new, most)
    certified, tightest = 0, 1.0
    for seed in range(6):
        random = random_classifier(seed)
        # Of half of the classifiers any edge of a new node decides.
        classify = spoilt(random) if seed % 2 else random
        exact = smoothed(classify, by_deletions(EDGES, 3, p_e, p_n))
        named = int(exact.argmax())
        other = float(np.delete(exact, named).max())
        bounds = ClassBounds(np.array([named]), exact[[named]], np.array([other]))
        sure = scheme.certified(bounds, {"nodes": new, "edges_per_node": most})[0]
        certified += sure
        for outcome in noisy:
            after = smoothed(classify, outcome)
            assert after[named] >= s * exact[named] - 1e-12
            assert np.delete(after, named).max() <= s * other + 1 - s + 1e-12
            assert not sure or after.argmax() == named
            tightest = min(tightest, after[named] - s * exact[named])
    assert tightest < 0.25  # deleted clean nodes take edges of new nodes with them
    assert certified


def test_isolation_is_what_a_single_node_reaches() -> None:
    lost = {
        tuple(sorted(graph)): sum(
            p for left, p in by_deletions(graph, 4, 0.5, 0.6).items() if left <= EDGES
        )
        for graph in injected(EDGES, 3, 1, 2)
    }
    assert min(lost.values()) >= isolation(0.5, 0.6, 1, 2) - 1e-12
    # Exact where the nodes at the other ends are never deleted.
    assert isolation(0.5, 0.6, 1, 2) == pytest.approx(0.6 + 0.4 * 0.25)
    assert isolation(0.8, 0.9, 0, 5) == 1


def test_the_radius_is_the_largest_number_of_nodes_of_the_bound() -> None:
    scheme = BiSmoothing(p_e=0.8, p_n=0.9)
    bounds = ClassBounds(np.array([0]), np.array([0.97]), np.array([0.01]))
    for edges in (1, 4, 50):
        sure = [
            bool(scheme.certified(bounds, {"nodes": k, "edges_per_node": edges})[0])
            for k in range(60)
        ]
        most = np.log(1.96) / -np.log(0.9 + 0.1 * 0.8**edges)
        assert sum(sure) == int(most) + 1
        assert sure == sorted(sure, reverse=True)


def test_nodes_and_edges_are_deleted_as_often_as_they_should() -> None:
    scheme, draws = BiSmoothing(p_e=0.2, p_n=0.3), 4000
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    edges, _ = scheme.sample(path, 3, Noise(0, "votes"), range(draws))
    counts = torch.zeros(draws, 3, 3)
    counts.index_put_((edges[0] // 3, edges[0] % 3, edges[1] % 3), torch.ones(()), accumulate=True)
    assert torch.equal(counts, counts.transpose(1, 2))
    assert counts.mean(0)[0, 1].item() == pytest.approx(0.8 * 0.7**2, abs=0.03)
    both = (counts[:, 0, 1] * counts[:, 1, 2]).mean().item()
    assert both == pytest.approx(0.8**2 * 0.7**3, abs=0.03)


def test_an_injected_node_leaves_the_noise_of_the_others_alone() -> None:
    scheme, noise = BiSmoothing(p_e=0.2, p_n=0.3), Noise(0, "votes")
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    more = torch.cat([path, torch.tensor([[3, 0], [0, 3]])], 1)
    for draw in range(20):
        before, _ = scheme.sample(path, 3, noise, [draw])
        after, _ = scheme.sample(more, 4, noise, [draw])
        assert torch.equal(after[:, (after < 3).all(0)], before)
