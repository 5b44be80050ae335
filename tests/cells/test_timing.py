from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion.cells import timing
from robust_diffusion.cells.timing import StepTiming, TimingResult, machine, measure
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GAT, GraphPDE

Make = Callable[..., Any]

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


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


def test_evaluations_are_those_of_one_diffusion(timed: Make) -> None:
    assert timed().nfe == 3 * 4
    assert timed(model=gat).nfe == 0
    assert timed(model=gat).timing["step"] == "aggregation"


def test_statistics_are_those_of_the_runs() -> None:
    found = timing.statistics([5.0, 1.0, 2.0, 3.0, 4.0])
    assert found == {"median": 3.0, "q1": 2.0, "q3": 4.0, "mean": 3.0, "fastest": 1.0}


def test_warm_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 0.5, 10.0, 10.25, 20.0, 21.0])
    clock = SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr(timing, "time", clock)
    calls: list[int] = []

    def run() -> torch.Tensor:
        calls.append(0)
        return torch.zeros(())

    assert measure(run, CPU, repeats=3, warm_up=4) == [0.5, 0.25, 1.0]
    assert len(calls) == 7


@pytest.mark.gpu
def test_on_a_gpu_the_device_is_named(timed: Make, make_fit: Make) -> None:
    from functools import partial

    import pytorch_lightning as pl

    from robust_diffusion.training import Fit

    trainer = partial(pl.Trainer, accelerator="gpu", devices=1, logger=False)
    found = timed(fit=Fit(trainer))
    assert found.timing["device"] == torch.cuda.get_device_name(0) == machine()["gpu"]
    assert found.timing["kind"] == "cuda"
    assert found.seconds["diffusion"] > 0


def test_a_device_without_a_timer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer: no timer for mps; use trainer=cpu"):
        measure(lambda: torch.zeros(()), torch.device("mps"), repeats=2, warm_up=1)


@pytest.mark.parametrize("options", [{"repeats": 1}, {"warm_up": 0}])
def test_numbers_out_of_range_are_refused(options: dict[str, int]) -> None:
    ((key, value),) = options.items()
    with pytest.raises(ConfigError, match=rf"timing\.{key}={value}"):
        StepTiming(**options)


def test_a_model_without_a_step_is_refused(timed: Make) -> None:
    with pytest.raises(ConfigError, match="seed=-1"):
        timed(seed=-1)
    with pytest.raises(ConfigError, match=r"model=Linear: has no `hidden_step` to time"):
        timed(model=lambda in_channels, out_channels: nn.Linear(in_channels, out_channels))
