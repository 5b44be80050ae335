"""Wall time of one diffusion, or of one aggregation step of another network."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytorch_lightning as pl
import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from robust_diffusion.checks import Seed, SomeSteps, check_value, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.load import build_sized
from robust_diffusion.flows import count_evaluations
from robust_diffusion.models.stack import HasHiddenStep
from robust_diffusion.operators import current_backend
from robust_diffusion.records.provenance import cpu_name
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TimingResult:
    """The results of one timing run.

    `timing` has the kind of `step`, the hardware and settings (`device`, its `kind`, `threads`,
    `backend`), the numbers of `repeats` and of `warm_up` runs, further statistics in seconds
    (`mean`, `q1`, `q3`, `fastest`), the size (`nodes`, `edges`, `width`), and the origin of the
    `weights`.
    """

    seconds: dict[str, float]  # the median, under `diffusion` also for an aggregation step
    nfe: int  # right-hand-side evaluations in one diffusion; 0 for an aggregation step
    timing: dict[str, Any]


@validated("timing")
class StepTiming:
    """Timing of one hidden layer's step on the clean test graph, without training or attacks.

    The step is the whole solution of a graph PDE's hidden layer, or one aggregation step of
    another network, in eval mode, without gradient. The weights are drawn from the seed. Their
    values do not affect the cost of a step, except for the number of steps of an adaptive solver,
    which is recorded as `nfe`.

    Reference: table (time) and section "Time Complexity", arXiv:2209.07754.

    Deviation: The paper reports the mean of 500 diffusions. This also reports the median and
    quartiles, which depend less on other load on the machine.

    Args:
        repeats: Timed runs of the step, at least 2.
        warm_up: Untimed runs before these, at least 1.
    """

    def __init__(
        self, *, repeats: Annotated[int, Ge(2), Le(10**6)] = 500, warm_up: SomeSteps = 20
    ) -> None:
        self.repeats = repeats
        self.warm_up = warm_up

    def __call__(
        self,
        *,
        datamodule: GraphDataModule,
        model: Callable[..., nn.Module],
        fit: Fit,
        seed: int,
        description: str = "model",
    ) -> TimingResult:
        """Build a model and time its second layer, on the device that `fit` names.

        Raises:
            ConfigError: The model has no hidden step, or there is no timer for the device.
        """
        device = fit.trainer().strategy.root_device
        pl.seed_everything(check_value("seed", seed, Seed), workers=True, verbose=False)
        built = build_sized(model, datamodule).to(device).eval()
        if not isinstance(built, HasHiddenStep):
            raise ConfigError(
                f"model={type(built).__name__}: has no `hidden_step` to time; give it one, or "
                "drop timing"
            )
        graph = datamodule.view("test")
        assert graph.x is not None
        assert graph.edge_index is not None
        with torch.no_grad():
            step = built.hidden_step(graph.x.to(device), graph.edge_index.to(device))
            with count_evaluations(built) as evaluations:
                step.run()
            seconds = time_step(step.run, device, repeats=self.repeats, warm_up=self.warm_up)
        name = cpu_name() if device.type == "cpu" else torch.cuda.get_device_name(device)
        times = _statistics(seconds)
        text = f"{1e3 * times['median']:.3g} ms per {step.kind}"
        log.info("%s: %s", description, text, extra={"end": text})
        return TimingResult(
            seconds={"diffusion": times.pop("median")},
            nfe=evaluations.total,
            timing={
                "step": step.kind,
                "repeats": self.repeats,
                "warm_up": self.warm_up,
                **times,
                "device": name,
                "kind": device.type,
                "threads": torch.get_num_threads(),
                "backend": current_backend(device.type),
                "nodes": graph.num_nodes,
                "edges": graph.num_edges,
                "width": step.width,
                "weights": f"drawn from seed {seed}, not trained",
            },
        )


def _statistics(seconds: Sequence[float]) -> dict[str, float]:
    """Compute quartiles, mean and minimum of times in seconds."""
    q1, median, q3 = (float(np.quantile(seconds, share)) for share in (0.25, 0.5, 0.75))
    mean = float(np.mean(seconds))
    return {"median": median, "q1": q1, "q3": q3, "mean": mean, "fastest": min(seconds)}


def time_step(
    run: Callable[[], Tensor], device: torch.device, *, repeats: int, warm_up: int
) -> list[float]:
    """Measure the wall time of each run in seconds, by CUDA events or the CPU's clock."""
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"trainer: no timer for {device.type}; use trainer=cpu or a CUDA device")
    for _ in range(warm_up):
        run()
    if device.type == "cuda":
        with torch.cuda.device(device):
            return _by_events(run, repeats)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def _by_events(run: Callable[[], Tensor], repeats: int) -> list[float]:
    torch.cuda.synchronize()
    new: Callable[..., Any] = torch.cuda.Event
    events = [(new(enable_timing=True), new(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in events]  # CUDA returns milliseconds
