import logging
import math

import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Frond, Grand
from robust_diffusion.flows import count_evaluations
from robust_diffusion.solver import Solver
from tests import oracles
from tests.graphs import NODES, build_flow, random_graph, random_signal


def test_equals_the_predictor_on_dense_matrices() -> None:
    """Two steps of length 1/2, the weights of the past written out."""
    flow, graph, z = build_flow(Frond, order=0.6), random_graph(), random_signal()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    key, query = flow.attention.key.weight, flow.attention.query.weight

    def slope(at: torch.Tensor) -> torch.Tensor:
        return oracles.grand(at, oracles.attention(at, dense, key, query, 2))

    speed = 0.5**0.6 / math.gamma(1.6)
    first = z + speed * slope(z)
    second = z + speed * ((2**0.6 - 1) * slope(z) + slope(first))
    with count_evaluations(flow) as count:
        found = Solver("rk4", num_steps=2).solve(flow, z, graph)
    assert count.total == 2
    torch.testing.assert_close(found, second)


def test_order_one_is_grand() -> None:
    z, graph, solver = random_signal(), random_graph(), Solver("rk4", num_steps=3)
    found, expected = (
        solver.solve(build_flow(cls, **options), z, graph)
        for cls, options in ((Frond, {"order": 1.0}), (Grand, {}))
    )
    assert torch.equal(found, expected)


def test_a_checkpointed_step_has_the_same_gradient() -> None:
    found = []
    for checkpoint in (False, True):
        flow, z = build_flow(Frond), random_signal().requires_grad_()
        solver = Solver("rk4", num_steps=3, checkpoint=checkpoint)
        solver.solve(flow.train(), z, random_graph()).square().sum().backward()
        found.append([z.grad, *(p.grad for p in flow.parameters())])
    for kept, anew in zip(*found, strict=True):
        torch.testing.assert_close(kept, anew)


@pytest.mark.parametrize(
    "solver",
    [Solver("dopri5", rtol=1e-3, atol=1e-3), Solver("rk4", num_steps=2, adjoint=True)],
    ids=["adaptive", "adjoint"],
)
def test_a_solver_without_a_memory_is_refused(solver: Solver) -> None:
    with pytest.raises(ConfigError, match=r"flow\.order=0\.85: .* fixed steps .*adjoint=false"):
        solver.solve(build_flow(Frond), random_signal(), random_graph())


def test_the_method_that_gives_way_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    solver = Solver("rk4", num_steps=2)
    for _ in range(2):
        solver.solve(build_flow(Frond), random_signal(), random_graph())
    (record,) = caplog.records
    assert record.getMessage().endswith("the fractional predictor takes the steps of rk4")


def test_nothing_happens_in_no_time() -> None:
    z = random_signal()
    assert Solver("rk4", num_steps=2).solve(build_flow(Frond, t_end=0.0), z, random_graph()) is z
