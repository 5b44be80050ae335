from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import binomtest

from robust_diffusion.certificates import BiSmoothing, ClassBounds, SparseSmoothing
from robust_diffusion.certificates.base import Noise, class_bounds, clopper_pearson, worst_case
from robust_diffusion.certificates.sparse import flip_regions
from robust_diffusion.errors import ConfigError

Edges = frozenset[tuple[int, int]]
CLASSES = 3


def random_classifier(seed: int) -> Callable[[Edges], int]:
    """The class of one node as a random function of the edges, nodes without edges ignored."""
    known: dict[Edges, int] = {}
    generator = np.random.default_rng(seed)

    def classify(edges: Edges) -> int:
        if edges not in known:
            known[edges] = int(generator.choice(CLASSES, p=[0.8, 0.1, 0.1]))
        return known[edges]

    return classify


def by_flips(edges: Edges, nodes: int, p_plus: float, p_minus: float) -> dict[Edges, float]:
    """Probability of every noisy graph under sparse smoothing."""
    pairs = list(combinations(range(nodes), 2))
    found: dict[Edges, float] = {}
    for there in product([False, True], repeat=len(pairs)):
        p = 1.0
        for pair, now in zip(pairs, there, strict=True):
            gone = p_minus if pair in edges else 1 - p_plus
            p *= 1 - gone if now else gone
        found[frozenset(pair for pair, now in zip(pairs, there, strict=True) if now)] = p
    return found


def by_deletions(edges: Edges, nodes: int, p_e: float, p_n: float) -> dict[Edges, float]:
    """Probability of every noisy graph under bi-smoothing."""
    found: dict[Edges, float] = {}
    for alive in product([False, True], repeat=nodes):
        p_alive = float(np.prod([1 - p_n if of else p_n for of in alive]))
        left = [(u, v) for u, v in edges if alive[u] and alive[v]]
        for kept in product([False, True], repeat=len(left)):
            p = p_alive * float(np.prod([1 - p_e if of else p_e for of in kept]))
            noisy = frozenset(edge for edge, of in zip(left, kept, strict=True) if of)
            found[noisy] = found.get(noisy, 0.0) + p
    return found


def smoothed(classify: Callable[[Edges], int], noisy: dict[Edges, float]) -> NDArray[np.float64]:
    found = np.zeros(CLASSES)
    for edges, p in noisy.items():
        found[classify(edges)] += p
    return found


def exact_bounds(exact: NDArray[np.float64]) -> ClassBounds:
    """The probabilities of the class of one node and of the next one, which are known."""
    named = int(exact.argmax())
    other = np.delete(exact, named).max()
    return ClassBounds(np.array([named]), exact[[named]], np.array([other]))


def injected(edges: Edges, nodes: int, new: int, most: int) -> Iterable[Edges]:
    """Every graph with so many new nodes of at most so many edges each."""
    possible = [(u, v) for u, v in combinations(range(nodes + new), 2) if v >= nodes]
    for chosen in product([False, True], repeat=len(possible)):
        added = [pair for pair, of in zip(possible, chosen, strict=True) if of]
        degrees = np.bincount([v for pair in added for v in pair], minlength=nodes + new)
        if degrees[nodes:].max() <= most:
            yield edges | frozenset(added)


PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.mark.parametrize(("additions", "deletions"), [(0, 1), (2, 0), (3, 2)])
@pytest.mark.parametrize(("p_plus", "p_minus"), [(0.2, 0.3), (0.0, 0.5)])
def test_regions_are_those_of_every_noisy_graph(
    additions: int, deletions: int, p_plus: float, p_minus: float
) -> None:
    by_ratio: dict[float, list[float]] = {}
    for differs in product([False, True], repeat=additions + deletions):
        p = q = 1.0
        for i, other in enumerate(differs):
            flip, back = (p_plus, 1 - p_minus) if i < additions else (p_minus, 1 - p_plus)
            p *= flip if other else 1 - flip
            q *= back if other else 1 - back
        if p == q == 0:
            continue
        ratio = round(np.log(p / q), 9) if p and q else np.inf * np.sign(p - q)
        found = by_ratio.setdefault(float(ratio), [0.0, 0.0])
        found[0] += p
        found[1] += q
    exact = np.array(list(by_ratio.values())).T
    regions = np.array(flip_regions(p_plus, p_minus, additions, deletions))
    given = (np.array([0.7, 0.95, 1.0]), np.array([0.0, 0.05, 0.3]))
    for ours, theirs in zip(worst_case(*regions, *given), worst_case(*exact, *given), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    if p_plus:
        regions, exact = (of[:, np.lexsort(of)] for of in (regions, exact))
        np.testing.assert_allclose(regions, exact, atol=1e-12)


def perturbed(edges: Edges, nodes: int, additions: int, deletions: int) -> Iterator[Edges]:
    absent = [pair for pair in combinations(range(nodes), 2) if pair not in edges]
    for added in combinations(absent, additions):
        for deleted in combinations(sorted(edges), deletions):
            yield (edges | frozenset(added)) - frozenset(deleted)


def test_no_flips_of_a_tiny_graph_break_the_bound() -> None:
    edges, budgets = frozenset({(0, 1), (1, 2), (2, 3)}), [(0, 1), (1, 0), (1, 1), (0, 2)]
    scheme, certified = SparseSmoothing(p_plus=0.1, p_minus=0.4), 0
    for seed in range(12):
        classify = random_classifier(seed)
        exact = smoothed(classify, by_flips(edges, 4, 0.1, 0.4))
        bounds = exact_bounds(exact)
        (named,) = bounds.predicted
        for added, deleted in budgets:
            budget = {"additions": added, "deletions": deleted}
            sure = scheme.certified(bounds, budget)[0]
            certified += sure
            least, largest = worst_case(
                *flip_regions(0.1, 0.4, added, deleted), bounds.lower, bounds.upper
            )
            for graph in perturbed(edges, 4, added, deleted):
                after = smoothed(classify, by_flips(graph, 4, 0.1, 0.4))
                assert after[named] >= least[0] - 1e-12
                assert np.delete(after, named).max() <= largest[0] + 1e-12
                assert not sure or after.argmax() == named
    assert 0 < certified < 48


def test_a_total_of_flips_is_certified_if_every_mix_is() -> None:
    scheme = SparseSmoothing(p_plus=0.1, p_minus=0.4)
    lower = np.linspace(0.5, 1, 200)
    bounds = ClassBounds(np.zeros(200, dtype=np.int64), lower, 1 - lower)
    mixes = [scheme.certified(bounds, {"additions": a, "deletions": 2 - a}).sum() for a in range(3)]
    assert 0 < scheme.certified_at(bounds, 2).sum() == min(mixes) < max(mixes)
    totals = [scheme.certified_at(bounds, total).sum() for total in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == (~bounds.abstained).sum()


def dense(edges: torch.Tensor, nodes: int, weights: torch.Tensor | None = None) -> torch.Tensor:
    found = torch.zeros(nodes, nodes, dtype=torch.float64)
    values = torch.ones(edges.size(1)).double() if weights is None else weights
    return found.index_put((edges[0], edges[1]), values, accumulate=True)


def test_edges_are_deleted_and_added_as_often_as_they_should() -> None:
    scheme, draws = SparseSmoothing(p_plus=0.1, p_minus=0.4), 1500
    edges, weights = scheme.sample(PATH, 4, Noise(0, "votes"), range(draws))
    assert weights is None
    adjacency = torch.zeros(draws, 4, 4, dtype=torch.float64)
    copy, one = edges[0] // 4, torch.ones((), dtype=torch.float64)
    assert torch.equal(copy, edges[1] // 4)
    adjacency.index_put_((copy, edges[0] % 4, edges[1] % 4), one, accumulate=True)
    assert torch.equal(adjacency, adjacency.transpose(1, 2))
    assert adjacency.max() == 1
    clean = dense(PATH, 4)
    expected = 0.6 * clean + 0.1 * (1 - clean - torch.eye(4))
    torch.testing.assert_close(adjacency.mean(0), expected, atol=0.05, rtol=0)


def test_weights_0_and_1_are_no_edge_and_an_edge() -> None:
    scheme, noise = SparseSmoothing(p_plus=0.3, p_minus=0.4), Noise(0, "votes")
    more = torch.cat([PATH, torch.tensor([[0, 3, 1, 3], [3, 0, 3, 1]])], 1)
    weight = torch.tensor([1.0] * 6 + [0.0] * 4, dtype=torch.float64, requires_grad=True)
    for given in ([0], [5, 2, 9]):
        plain, _ = scheme.sample(PATH, 4, noise, given)
        weighted, weights = scheme.sample(more, 4, noise, given, weight)
        nodes = 4 * len(given)
        assert torch.equal(dense(plain, nodes), dense(weighted, nodes, weights).detach())
    (gradient,) = torch.autograd.grad(weights.sum(), weight)
    assert (gradient != 0).any()


@pytest.mark.parametrize(
    ("scheme", "wrong"),
    [
        (SparseSmoothing, {"p_plus": 0.5, "p_minus": 0.5}),
        (SparseSmoothing, {"p_minus": 1}),
        (SparseSmoothing, {"samples": 0}),
        (SparseSmoothing, {"budgets": (-1,)}),
        (BiSmoothing, {"edges": ()}),
        (BiSmoothing, {"p_n": -0.1}),
    ],
)
def test_numbers_out_of_range_are_refused(scheme: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^certificate.{next(iter(wrong))}="):
        scheme(**wrong)


EDGES: Edges = frozenset({(0, 1), (1, 2)})


@pytest.mark.parametrize(("new", "most"), [(1, 1), (1, 3), (2, 1), (2, 2)])
def test_no_injected_graph_of_a_tiny_instance_breaks_the_bound(new: int, most: int) -> None:
    p_e, p_n = 0.5, 0.7
    scheme, graphs = BiSmoothing(p_e=p_e, p_n=p_n), list(injected(EDGES, 3, new, most))
    noisy = [by_deletions(graph, 3 + new, p_e, p_n) for graph in graphs]
    s = (p_n + (1 - p_n) * p_e**most) ** new
    certified, tightest = 0, 1.0
    for seed in range(6):
        random = random_classifier(seed)

        def classify(edges: Edges, seed: int = seed, random: Any = random) -> int:
            # Of half of the classifiers any edge of a new node decides.
            return 2 if seed % 2 and any(v >= 3 for _, v in edges) else random(edges)

        exact = smoothed(classify, by_deletions(EDGES, 3, p_e, p_n))
        bounds = exact_bounds(exact)
        (named,) = bounds.predicted
        sure = scheme.certified(bounds, {"nodes": new, "edges_per_node": most})[0]
        certified += sure
        for outcome in noisy:
            after = smoothed(classify, outcome)
            assert after[named] >= s * exact[named] - 1e-12
            assert np.delete(after, named).max() <= s * bounds.upper[0] + 1 - s + 1e-12
            assert not sure or after.argmax() == named
            tightest = min(tightest, after[named] - s * exact[named])
    assert tightest < 0.25  # deleted clean nodes take edges of new nodes with them
    assert certified


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


def test_an_injected_node_leaves_the_noise_of_the_others_alone() -> None:
    scheme, noise = BiSmoothing(p_e=0.2, p_n=0.3), Noise(0, "votes")
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    more = torch.cat([path, torch.tensor([[3, 0], [0, 3]])], 1)
    for draw in range(20):
        before, _ = scheme.sample(path, 3, noise, [draw])
        after, _ = scheme.sample(more, 4, noise, [draw])
        assert torch.equal(after[:, (after < 3).all(0)], before)


@pytest.mark.parametrize("count", [0, 3, 20])
def test_clopper_pearson_is_exact(count: int) -> None:
    lower, upper = clopper_pearson(np.array([count]), 20, 0.01)
    expected = binomtest(count, 20).proportion_ci(0.98, method="exact")
    np.testing.assert_allclose([lower[0], upper[0]], [expected.low, expected.high], atol=1e-12)


def test_class_bounds_share_alpha_among_the_classes() -> None:
    selection = torch.tensor([[0, 10, 0], [4, 3, 3]])
    votes = torch.tensor([[20, 70, 10], [40, 30, 30]])
    bounds = class_bounds(selection, votes, 0.03)
    lower, upper = clopper_pearson(np.array([[20, 70, 10], [40, 30, 30]]), 100, 0.01)
    assert bounds.predicted.tolist() == [1, 0]
    assert bounds.lower.tolist() == [lower[0, 1], lower[1, 0]]
    assert bounds.upper.tolist() == [upper[0, 0], upper[1, 1]]
    assert bounds.abstained.tolist() == [False, True]


def test_the_worst_case_is_the_optimum_of_the_linear_program() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        clean, attacked = generator.dirichlet(np.ones(6), size=2)
        clean[0], attacked[1] = 0.0, 0.0
        clean, attacked = clean / clean.sum(), attacked / attacked.sum()
        p, q = generator.uniform(0.5, 1), generator.uniform(0, 0.5)
        given = {"bounds": [(0, 1)] * 6}
        least = linprog(attacked, A_ub=-clean[None], b_ub=[-p], **given).fun
        largest = -linprog(-attacked, A_ub=clean[None], b_ub=[q], **given).fun
        found = worst_case(clean, attacked, np.array([p]), np.array([q]))
        np.testing.assert_allclose([found[0][0], found[1][0]], [least, largest], atol=1e-9)
