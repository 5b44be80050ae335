from functools import cache

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks import PRBCD, Budget, RandomFlip
from robust_diffusion.certificates import heat_bound
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.attacks.contract import clean, graph, trained


def operators(edge_index: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Dense A - I: of the random walk, and symmetrically normalised."""
    w = torch.eye(n, dtype=torch.float64)
    w[edge_index[1], edge_index[0]] = 1
    degree = w.sum(1)
    root = degree.rsqrt()
    eye = torch.eye(n, dtype=torch.float64)
    return w / degree[:, None] - eye, root[:, None] * w * root - eye


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
def test_each_bound_is_of_its_own_operator(t_end: float) -> None:
    hub = torch.arange(1, 400)
    star = torch.stack([torch.cat([hub, 0 * hub]), torch.cat([0 * hub, hub])])
    fewer = star[:, ((star == 0) | (star > 100)).all(0)]
    n, given = graph().num_nodes, graph().edge_index
    cases = [(given, attacked, n) for attacked in attacked_graphs()]
    for before, after, n in [(star, fewer, 400), *cases]:
        bound = heat_bound(before, after, n, t_end=t_end)
        walk, symmetric = (
            torch.matrix_exp(t_end * ours) - torch.matrix_exp(t_end * theirs)
            for ours, theirs in zip(operators(after, n), operators(before, n), strict=True)
        )
        # The largest change at a node, of features in 0..1.
        assert (walk.clamp(min=0).sum(1) <= bound.nodes + 1e-9).all()
        change = torch.linalg.matrix_norm(symmetric, ord=2) / bound.symmetric_spectral
        assert change <= 1 + 1e-9
        if before is star:
            assert torch.linalg.matrix_norm(walk, ord=2) > bound.symmetric_spectral
    assert change > 0.2


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
    assert bound.symmetric_spectral == 0
    assert bound.nodes.max() == 0
    with pytest.raises(ConfigError, match="t_end=-1"):
        heat_bound(graph().edge_index, graph().edge_index, graph().num_nodes, t_end=-1)
