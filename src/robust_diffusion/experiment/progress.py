"""Progress of a sweep: a header, then one line per finished run with the time left."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig
from tqdm import tqdm

from robust_diffusion.records.header import by_key
from robust_diffusion.results.captions import differing_keys
from robust_diffusion.system.progress import LineHandler, Progress, about, duration

PLAN = "progress.json"


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
        path = Path(config.hydra.sweep.dir) / PLAN
        if config.hydra.mode != RunMode.MULTIRUN or not path.is_file():
            return
        plan = json.loads(path.read_text(encoding="utf-8"))
        name = _name(by_key(config.hydra.overrides.task), plan["swept"], config)
        count = plan["count"]
        Progress.label = f"[{config.hydra.job.num + 1:>{len(str(count))}}/{count}] "
        self._name, self._end = f"{Progress.label}{name:<{plan['width']}}", "done"
        self._start, self._lines, self._reused = time.monotonic(), list[str](), False
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LineHandler):
                handler.addFilter(self._collect)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Report the end of a run."""
        if Progress.label:
            seconds = "" if self._reused else duration(time.monotonic() - self._start)
            self._lines.append(f"{self._name}  {self._end:<32} {seconds:>11}")
            SweepProgress.last = self._lines, int(self._reused)
            Progress.label = ""
            report(*SweepProgress.last)

    def _collect(self, record: logging.LogRecord) -> bool:
        shared = getattr(record, "shared", None)  # None unless the message is of an attack
        if end := getattr(record, "end", None):
            self._end, self._reused = end, hasattr(record, "reused")
        elif record.levelno >= logging.WARNING and shared is not False:
            name = "" if shared else f"{self._name.strip()}: "
            self._lines.append(f"  ⚠ {name}{logging.Formatter().format(record)}")
        return False


@contextmanager
def reporting(config: DictConfig, overrides: Sequence[Sequence[str]]) -> Iterator[None]:
    """Print a header for runs with these overrides, and report them until the block ends."""
    if not overrides or not config.hydra.callbacks.get("progress"):
        yield
        return
    runs = list(map(by_key, overrides))
    swept, count = differing_keys(runs), len(runs)
    width = max(len(_name(run, swept, config)) for run in runs)
    plan = {"swept": swept, "count": count, "width": width}
    path = Path(config.hydra.sweep.dir) / PLAN
    path.write_text(json.dumps(plan), encoding="utf-8")
    composed = config.hydra.runtime.choices.dataset
    datasets = dict.fromkeys(run.get("dataset", composed) for run in runs)
    over = f" over {' × '.join(swept)}" if swept else ""
    header = f"{count} run{'s' * (count > 1)}{over} · {', '.join(datasets)}\n"
    tqdm.write(header, file=sys.stderr)
    _printed.clear()
    with Progress("sweep", count, "runs", lines=False) as SweepProgress.bar:
        try:
            yield
        finally:
            SweepProgress.bar = None
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
    rest = f"   {about(left)} left" if left and bar.total != bar.done else ""
    for line in (*(line for line in warnings if line not in _printed), f"{end}{rest}".rstrip()):
        tqdm.write(line, file=sys.stderr)
    _printed.update(warnings)


def _name(run: Mapping[str, str], swept: Sequence[str], config: DictConfig) -> str:
    """Return a name for a run that is unique in its sweep, such as `heat step_size=0.5 seed=0`."""
    parts = [
        f"{key.rpartition('.')[2]}={run[key]}" if "." in key or key == "seed" else run[key]
        for key in swept
        if key in run
    ]
    choices = config.hydra.runtime.choices
    return " ".join(parts) or str(choices.flow if "flow" in config.model else choices.model)
