from functools import cache

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks import PRBCD, Budget, RandomFlip
from robust_diffusion.certificates import heat_bound
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Heat
from robust_diffusion.operators import Graph
from robust_diffusion.solver import Solver
from tests.attacks.contract import clean, graph, trained


def operators(edge_index: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Dense A - I, and the symmetric normalised Laplacian."""
    w = torch.eye(n, dtype=torch.float64)
    w[edge_index[1], edge_index[0]] = 1
    degree = w.sum(1)
    root = degree.rsqrt()
    eye = torch.eye(n, dtype=torch.float64)
    return w / degree[:, None] - eye, eye - root[:, None] * w * root


@cache
def attacked_graphs() -> list[Tensor]:
    """Random flips and those of an attack, few and many."""
    attacks = [RandomFlip(), PRBCD(num_steps=5, block_size=2000)]
    return [
        attack(
            trained(),
            clean(graph()),
            graph().index_test,
            Budget(0, 0, (-1, 1), node_ratio=0, edge_ratio=ratio),
            torch.Generator().manual_seed(0),
        ).edge_index
        for attack in attacks
        for ratio in (0.01, 0.3)
    ]


@pytest.mark.parametrize("t_end", [0.5, 1.0, 4.0])
def test_the_bound_holds_on_random_and_attacked_graphs(t_end: float) -> None:
    n, tightest = graph().num_nodes, 0.0
    z = torch.randn(n, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    span = z.amax(0) - z.amin(0)
    before = [torch.matrix_exp(t_end * of) for of in operators(graph().edge_index, n)]
    walk, symmetric = before[0], torch.matrix_exp(-t_end * operators(graph().edge_index, n)[1])
    for edges in attacked_graphs():
        bound = heat_bound(graph().edge_index, edges, n, t_end=t_end)
        after, laplacian = operators(edges, n)
        change = (torch.matrix_exp(t_end * after) - walk) @ z
        assert ((change.abs() / span).amax(1) <= bound.nodes + 1e-9).all()
        spectral = torch.linalg.matrix_norm(torch.matrix_exp(-t_end * laplacian) - symmetric, ord=2)
        assert spectral <= bound.spectral + 1e-9
        tightest = max(tightest, float(spectral / bound.spectral))
    assert tightest > 0.2


def test_the_bound_is_that_of_the_flow_of_the_package() -> None:
    edges, n = attacked_graphs()[0], graph().num_nodes
    z = torch.randn(n, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    solver = Solver("rk4", num_steps=20)
    ends = [
        solver.solve(Heat(5), z, Graph.from_edge_index(of, num_nodes=n, dtype=z.dtype))
        for of in (graph().edge_index, edges)
    ]
    change = ((ends[1] - ends[0]).abs() / (z.amax(0) - z.amin(0))).amax(1)
    bound = heat_bound(graph().edge_index, edges, n).nodes
    assert (change <= bound + 1e-6).all()
    assert (bound < 0.01).sum() > (bound > 0.01).sum() > 0
    assert change.max() > 0.1 * bound.max()


def test_no_change_of_edges_is_no_change_of_the_output() -> None:
    bound = heat_bound(graph().edge_index, graph().edge_index.flip(0), graph().num_nodes)
    assert bound.spectral == 0
    assert bound.nodes.max() == 0
    with pytest.raises(ConfigError, match="t_end=-1"):
        heat_bound(graph().edge_index, graph().edge_index, graph().num_nodes, t_end=-1)
