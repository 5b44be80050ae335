from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion.cells.timing import StepTiming, TimingResult, measure
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GAT, GraphPDE
from robust_diffusion.records.provenance import machine

Make = Callable[..., Any]

CPU = torch.device("cpu")


def heat(in_channels: int, out_channels: int) -> nn.Module:
    solver = Solver("rk4", num_steps=3)
    return GraphPDE(in_channels, 8, out_channels, flow=Heat, solver=solver)


def gat(in_channels: int, out_channels: int) -> nn.Module:
    return GAT(in_channels, 8, out_channels, heads=2)


@pytest.fixture
def timed(make_datamodule: Make, make_fit: Make) -> Callable[..., TimingResult]:
    """Times a model on a small graph; keyword arguments replace its parts."""

    def run(**parts: Any) -> TimingResult:
        given = {"datamodule": make_datamodule(), "model": heat, "fit": make_fit(), "seed": 0}
        return StepTiming(repeats=4, warm_up=2)(**(given | parts))

    return run


def test_a_result_says_what_was_timed_on_what_and_how_often(timed: Make) -> None:
    result = timed()
    found = result.timing
    assert (found["step"], found["repeats"], found["warm_up"]) == ("diffusion", 4, 2)
    assert (found["kind"], found["threads"], found["nodes"], found["width"]) == ("cpu", 1, 200, 8)
    assert found["device"] == machine()["cpu"]
    assert found["backend"] == machine()["backend"]
    assert "not trained" in found["weights"]
    median = result.seconds["diffusion"]
    assert 0 < found["fastest"] <= found["q1"] <= median <= found["q3"] < 1


def test_what_cannot_be_timed_is_refused(timed: Make) -> None:
    assert timed(model=gat).nfe == 0
    assert timed(model=gat).timing["step"] == "aggregation"
    for key, call in {
        "seed=-1": lambda: timed(seed=-1),
        "model=Linear": lambda: timed(model=lambda in_channels, out_channels: nn.Linear(2, 2)),
        r"timing\.repeats=1": lambda: StepTiming(repeats=1),
        r"timing\.warm_up=0": lambda: StepTiming(warm_up=0),
        "trainer": lambda: measure(torch.zeros, torch.device("mps"), repeats=2, warm_up=1),
    }.items():
        with pytest.raises(ConfigError, match=key):
            call()
