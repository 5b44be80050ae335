import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.evaluation.step_ratio import step_flags, step_ratio, warn_of_steps
from robust_diffusion.flows import Flow, Hang, Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE

pytestmark = pytest.mark.faults


@pytest.fixture
def data(make_datamodule: Callable[..., Any]) -> Data:
    view: Data = make_datamodule().view("test")
    return view


def pde(solver: Solver, t_end: float = 1.0, flow: type[Flow] = Heat) -> GraphPDE:
    torch.manual_seed(0)
    return GraphPDE(16, 8, out_channels=4, flow=partial(flow, t_end=t_end), solver=solver).eval()


def test_step_ratio_without_equal_steps(data: Data) -> None:
    for model in (pde(Solver("dopri5")), GCN(16, 8, out_channels=4).eval()):
        assert step_ratio(model, data) is None
        assert list(step_flags(step_ratio(model, data))) == []


@pytest.mark.parametrize("flow", [Heat, Hang])  # HANG's state is narrowed
def test_step_ratio_value(data: Data, flow: type[Flow]) -> None:
    model = pde(Solver("rk4", num_steps=4), flow=flow)
    with torch.no_grad():
        before = model(data.x, data.edge_index)
        state = torch.get_rng_state()
        ratio = step_ratio(model, data)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(model(data.x, data.edge_index), before)
    if flow is Heat:  # A - I, A stochastic, has a spectral radius of at most 2
        assert 0.25 * 1 / 2.78 < (ratio or 0) <= 0.25 * 2.01 / 2.78
    assert 0 < (ratio or 0) < 1


@pytest.mark.parametrize(
    ("solver", "t_end", "warned", "flagged"),
    [
        (Solver("implicit_adams", num_steps=4), 1.0, 0, 0),
        (Solver("euler", num_steps=10), 100.0, 1, 0),
        (Solver("euler", num_steps=10), 1e3, 1, 1),
    ],
)
def test_step_ratio_unstable_steps(
    data: Data,
    caplog: pytest.LogCaptureFixture,
    solver: Solver,
    t_end: float,
    warned: int,
    flagged: int,
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_steps(pde(solver, t_end), data)
    assert len(caplog.messages) == warned
    flags = [flag.code for flag in step_flags(step_ratio(pde(solver, t_end), data))]
    assert flags == ["diverged"] * flagged
