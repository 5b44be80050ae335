"""Progress of a sweep: a header, then one line per finished run with the time left."""

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig
from tqdm import tqdm

from robust_diffusion.records.header import by_key, now, sweep_name
from robust_diffusion.records.records import Asked, Sweep, read_sweep, save_sweep
from robust_diffusion.results.frame import differing_keys
from robust_diffusion.system.progress import LineHandler, Progress


class SweepProgress(Callback):
    """Callback that replaces the log of a sweep's runs on the terminal by one line per run.

    Warnings stand above the line of their run; a warning common to several runs is printed once.
    Everything else is only in the run's log.
    """

    bar: ClassVar[Progress | None] = None
    """Progress of the sweep, in the process that started it."""

    last: ClassVar[tuple[list[str], int]] = ([], 0)
    """Arguments of `report` for the last run of this process, which its launcher passes on."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Divert the run's log from the terminal."""
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        sweep = read_sweep(sweep_name(config, config.hydra.sweep.dir), config.paths.records)
        number = config.hydra.job.num
        if sweep is None or number >= len(sweep.runs):  # of a sweeper that plans run by run
            return
        names, count = _names(sweep, config), len(sweep.runs)
        Progress.inner = None  # of the run before
        Progress.label = f"[{number + 1:>{len(str(count))}}/{count}] "
        self._name = f"{Progress.label}{names[number]:<{max(map(len, names))}}"
        self._end = "done"
        self._start, self._lines, self._reused = time.monotonic(), list[str](), False
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LineHandler):
                handler.addFilter(self._collect)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Report the end of a run."""
        if Progress.label:
            took = "" if self._reused else tqdm.format_interval(time.monotonic() - self._start)
            self._lines.append(f"{self._name}  {self._end:<32} {took:>8}")
            SweepProgress.last = self._lines, int(self._reused)
            Progress.label = ""
            report(*SweepProgress.last)

    def _collect(self, record: logging.LogRecord) -> bool:
        shared = getattr(record, "shared", None)  # None unless the message is of an attack
        if end := getattr(record, "end", None):
            self._end, self._reused = end, hasattr(record, "reused")
        elif hasattr(record, "size"):
            line = record.getMessage()
            if SweepProgress.bar is None:  # in a process of its own
                self._lines.append(line)
            elif line not in _printed:
                _printed.add(line)
                return True
        elif record.levelno >= logging.WARNING and shared is not False:
            name = "" if shared else f"{self._name.strip()}: "
            self._lines.append(f"  ⚠ {name}{logging.Formatter().format(record)}")
        return hasattr(record, "progress")  # a line a minute


def announce(config: DictConfig, overrides: Sequence[Sequence[str]]) -> None:
    """Print the header of a sweep, before anything that takes seconds."""
    if not overrides or not config.hydra.callbacks.get("progress"):
        return
    sweep = _planned(config, overrides)
    swept, count = swept_keys(sweep), sum(not _is_mlp(run.overrides) for run in sweep.runs)
    composed = config.hydra.runtime.choices.dataset
    datasets = dict.fromkeys(run.overrides.get("dataset", composed) for run in sweep.runs)
    over = f" over {' × '.join(swept)}" if swept else ""
    mlps = f", and {more} of an MLP" if (more := len(overrides) - count) else ""
    header = f"{count} run{'s' * (count > 1)}{over}{mlps} · {', '.join(datasets)}\n"
    tqdm.write(header, file=sys.stderr)


@contextmanager
def reporting(config: DictConfig, overrides: Sequence[Sequence[str]]) -> Iterator[None]:
    """Save the plan of a sweep, and report its runs until the block ends."""
    if not overrides:
        yield
        return
    sweep = _planned(config, overrides)
    save_sweep(sweep, config.paths.records)
    if not config.hydra.callbacks.get("progress"):
        yield
        return
    _printed.clear()
    with Progress("sweep", len(overrides), "runs", lines=False) as SweepProgress.bar:
        Progress.around = SweepProgress.bar
        try:
            yield
        finally:
            SweepProgress.bar = Progress.around = None
            Progress.label = ""  # an interrupted run leaves its label


_printed: set[str] = set()
"""Lines that the sweep has printed."""


def report(lines: Sequence[str], reused: int) -> None:
    """Print the lines of a finished run, unless printed before; in the process of the sweep."""
    if (bar := SweepProgress.bar) is None:
        return
    bar(1, free=reused)
    *warnings, end = lines
    left = bar.seconds_left()
    rest = f"   {tqdm.format_interval(left)} left" if left and bar.total != bar.done else ""
    for line in (*(line for line in warnings if line not in _printed), f"{end}{rest}".rstrip()):
        tqdm.write(line, file=sys.stderr)
    _printed.update(warnings)


def _planned(config: DictConfig, overrides: Sequence[Sequence[str]]) -> Sweep:
    choices = config.hydra.runtime.choices
    return Sweep(
        sweep=sweep_name(config, config.hydra.sweep.dir),
        experiment=choices.experiment,
        scale=choices.get("scale", "full"),
        time=now(),
        runs=[Asked(job=job, overrides=by_key(run)) for job, run in enumerate(overrides)],
    )


def swept_keys(sweep: Sweep) -> list[str]:
    """Return the keys of the overrides in which the runs of a sweep differ, without its MLPs."""
    return differing_keys([run.overrides for run in sweep.runs if not _is_mlp(run.overrides)])


def mlps_of(runs: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the runs that train an MLP with the data, training and seed of each of these runs."""
    kept = (
        [o for o in run if re.split("[.@=]", o.lstrip("+~"))[0] not in _NOT_OF_AN_MLP]
        for run in runs
    )
    return [[*run, *_MLP] for run in dict.fromkeys(map(tuple, kept))]


_MLP = ("model=mlp", "attack=none")

_NOT_OF_AN_MLP = frozenset(
    [
        *("adversary", "attack", "attacks", "budget", "flow", "model", "solver", "surrogate"),
        *("surrogates", "threat"),
    ]
)
"""Parts that an MLP without attacks does not read."""


def _is_mlp(overrides: Mapping[str, str]) -> bool:
    return all(overrides.get(key) == name for key, name in (o.split("=") for o in _MLP))


def _names(sweep: Sweep, config: DictConfig) -> list[str]:
    """Return a name for each run that is unique in its sweep, such as `heat step_size=0.5 seed=0`.

    A run that differs in nothing is named by its flow or model.
    """
    choices, swept = config.hydra.runtime.choices, swept_keys(sweep)
    alone = str(choices.flow if "flow" in config.model else choices.model)
    return [
        " ".join(
            f"{key.rpartition('.')[2]}={run.overrides[key]}"
            if "." in key or key == "seed"
            else run.overrides[key]
            for key in dict.fromkeys(["model"] * _is_mlp(run.overrides) + swept)
            if key in run.overrides
        )
        or alone
        for run in sweep.runs
    ]
