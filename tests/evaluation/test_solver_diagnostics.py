import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.evaluation.solver_diagnostics import LARGEST_GROWTH, solves_of, warn_of_steps
from robust_diffusion.flows import Hang, Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE

pytestmark = pytest.mark.faults


@pytest.fixture
def data(make_datamodule: Callable[..., Any]) -> Data:
    view: Data = make_datamodule().view("test")
    return view


def pde(solver: Solver, t_end: float = 1.0) -> GraphPDE:
    torch.manual_seed(0)
    return GraphPDE(16, 8, 4, flow=partial(Heat, t_end=t_end), solver=solver).eval()


def test_what_is_not_there_or_not_finite_is_none(data: Data) -> None:
    adaptive = solves_of(pde(Solver("dopri5", rtol=1e-4, atol=1e-6)), data)
    assert adaptive["step_ratio"] is adaptive["corrector_change"] is None
    exploded = solves_of(pde(Solver("euler", num_steps=60), t_end=1e4), data)
    assert exploded["norm_growth"] is None
    assert solves_of(GCN(16, 8, 4).eval(), data) == {}


def test_a_stable_solve_is_measured_and_changes_nothing(data: Data) -> None:
    model = pde(Solver("implicit_adams", num_steps=4))
    with torch.no_grad():
        before = model(data.x, data.edge_index)
        state = torch.get_rng_state()
        found = solves_of(model, data)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(model(data.x, data.edge_index), before)
    assert 0 < (found["norm_growth"] or 0) <= 1
    radius = found["spectral_radius"] or 0
    assert 1 < radius <= 2.01  # of A - I, A stochastic
    assert found["step_ratio"] == pytest.approx(0.25 * radius / 2.66)
    assert 0 < (found["corrector_change"] or 0) < 1e-3
    by_size = solves_of(pde(Solver("rk4", step_size=0.25)), data)
    assert by_size == solves_of(pde(Solver("rk4", num_steps=4)), data)


@pytest.mark.parametrize(
    ("solver", "t_end", "told"),
    [
        (Solver("implicit_adams", num_steps=4), 1.0, 0),
        (Solver("euler", num_steps=10), 100.0, 1),
        (Solver("implicit_adams", num_steps=10), 15.0, 1),  # the corrector drifts
    ],
)
def test_steps_that_are_not_stable_are_told(
    data: Data, caplog: pytest.LogCaptureFixture, solver: Solver, t_end: float, told: int
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_steps(pde(solver, t_end), data)
    assert len(caplog.messages) == told
    growth = solves_of(pde(solver, t_end), data)["norm_growth"] or 0
    assert (growth > LARGEST_GROWTH) is (solver.method == "euler")


def test_a_flow_that_is_narrowed_is_measured_by_its_own_state(data: Data) -> None:
    torch.manual_seed(0)
    model = GraphPDE(16, 8, 4, flow=Hang, solver=Solver("rk4", num_steps=4)).eval()
    with torch.no_grad():
        before = model(data.x, data.edge_index)
        found = solves_of(model, data)
        assert torch.equal(model(data.x, data.edge_index), before)
    assert 0.1 < (found["norm_growth"] or 0) < 10
    assert (found["spectral_radius"] or 0) > 0
