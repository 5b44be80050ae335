import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE
from robust_diffusion.robustness.solves import LARGEST_GROWTH, solves_of, tell_of_steps

pytestmark = pytest.mark.faults


@pytest.fixture
def data(make_datamodule: Callable[..., Any]) -> Data:
    view: Data = make_datamodule().view("test")
    return view


def pde(solver: Solver, t_end: float = 1.0) -> GraphPDE:
    torch.manual_seed(0)
    return GraphPDE(16, 8, 4, flow=partial(Heat, t_end=t_end), solver=solver).eval()


def test_a_stable_solve_is_told_by_its_numbers_alone(
    data: Data, caplog: pytest.LogCaptureFixture
) -> None:
    model = pde(Solver("implicit_adams", num_steps=4))
    with caplog.at_level(logging.WARNING):
        tell_of_steps(model, data)
    assert caplog.text == ""
    found = solves_of(model, data)
    assert found["norm_growth"] is not None
    assert 0 < found["norm_growth"] <= 1
    assert found["spectral_radius"] is not None
    assert 1 < found["spectral_radius"] <= 2.01  # of A - I, A stochastic
    assert found["step_ratio"] == pytest.approx(0.25 * found["spectral_radius"] / 2.66)
    assert found["corrector_change"] is not None
    assert 0 < found["corrector_change"] < 1e-3


def test_looking_changes_nothing(data: Data) -> None:
    model = pde(Solver("rk4", num_steps=2))
    x, edges = data.x, data.edge_index
    with torch.no_grad():
        before = model(x, edges)
        state = torch.get_rng_state()
        solves_of(model, data)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(model(x, edges), before)


def test_steps_that_are_not_stable_are_told(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    model = pde(Solver("euler", num_steps=10), t_end=100.0)
    with caplog.at_level(logging.WARNING):
        tell_of_steps(model, data)
    (message,) = caplog.messages
    assert "times the longest stable one" in message
    growth = solves_of(model, data)["norm_growth"]
    assert growth is not None
    assert growth > LARGEST_GROWTH


def test_a_corrector_that_drifts_is_told(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tell_of_steps(pde(Solver("implicit_adams", num_steps=10), t_end=15.0), data)
    (message,) = caplog.messages
    assert "the corrector's last iteration still changes the state" in message


def test_what_is_not_there_or_not_finite_is_none(data: Data) -> None:
    adaptive = solves_of(pde(Solver("dopri5", rtol=1e-4, atol=1e-6)), data)
    assert adaptive["step_ratio"] is adaptive["corrector_change"] is None
    exploded = solves_of(pde(Solver("euler", num_steps=60), t_end=1e4), data)
    assert exploded["norm_growth"] is None
    assert solves_of(GCN(16, 8, 4).eval(), data) == {}


def test_steps_of_a_given_size_are_estimated_as_their_number_is(data: Data) -> None:
    of_size = solves_of(pde(Solver("rk4", step_size=0.25)), data)
    assert of_size == solves_of(pde(Solver("rk4", num_steps=4)), data)
    assert of_size["step_ratio"] is not None
