"""Small sets of undirected pairs, and edge lists of them."""

import torch
from hypothesis import strategies as st
from torch import Tensor

N = 9
ALL_PAIRS = [(u, v) for u in range(N) for v in range(u + 1, N)]
graphs = st.sets(st.sampled_from(ALL_PAIRS))
node_sets = st.sets(st.integers(0, N - 1), min_size=1)


def both_ways(pairs: set[tuple[int, int]]) -> Tensor:
    half = torch.tensor(sorted(pairs), dtype=torch.long).reshape(-1, 2).T
    return torch.cat([half, half.flip(0)], 1)


def as_set(pairs: Tensor) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in pairs.T.tolist()}
