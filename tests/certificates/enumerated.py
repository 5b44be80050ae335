"""Smoothed classifiers of tiny graphs, exactly, by every noisy graph."""

from collections.abc import Callable, Iterable
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

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
    """Exact probability of each class."""
    found = np.zeros(CLASSES)
    for edges, p in noisy.items():
        found[classify(edges)] += p
    return found


def injected(edges: Edges, nodes: int, new: int, most: int) -> Iterable[Edges]:
    """Every graph with so many new nodes of at most so many edges each."""
    possible = [(u, v) for u, v in combinations(range(nodes + new), 2) if v >= nodes]
    for chosen in product([False, True], repeat=len(possible)):
        added = [pair for pair, of in zip(possible, chosen, strict=True) if of]
        degrees = np.bincount([v for pair in added for v in pair], minlength=nodes + new)
        if degrees[nodes:].max() <= most:
            yield edges | frozenset(added)
