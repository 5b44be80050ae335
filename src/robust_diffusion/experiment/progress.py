"""Progress of a sweep: what it will cost, how far it is, and a bar."""

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from robust_diffusion.experiment.estimate import estimate, features
from robust_diffusion.experiment.sweeper import planned_runs
from robust_diffusion.records.records import read_records
from robust_diffusion.results.captions import differing_keys
from robust_diffusion.system.progress import Progress, duration

log = logging.getLogger(__name__)

PLAN = "progress.json"
DONE = ".cells-done"


class SweepProgress(Callback):
    """Logs after each run of a sweep how many are done, of how many, and the time left.

    The count lies in the sweep's folder, one byte per run, since runs may be parallel, in
    processes of their own: `.`, `f` of a run that failed, or `r` of one that was done before,
    which tells nothing of how long one takes.
    """

    _recorded = 0  # bytes of the records before the run: only what comes behind is read after it

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Count the runs to come."""
        directory = Path(config.hydra.sweep.dir)
        directory.mkdir(parents=True, exist_ok=True)
        # A sweeper that searches has a number of trials and no plan.
        trials, typed = config.hydra.sweeper.get("n_trials"), config.hydra.overrides.task
        searched = [[*typed, f"trial={number}"] for number in range(trials or 0)]
        cells = searched or planned_runs(config)
        # Runs are named by what a sweep varies.
        overrides = [dict(of.lstrip("+").partition("=")[::2] for of in cell) for cell in cells]
        swept = list(config.hydra.sweeper.params or {}) if searched else differing_keys(overrides)
        plan = {"cells": len(cells), "start": time.time(), "swept": swept}
        (directory / PLAN).write_text(json.dumps(plan), encoding="utf-8")
        (directory / DONE).write_bytes(b"")
        _tell_cost(config, cells)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note where the records end."""
        path = Path(config.paths.records)
        self._recorded = path.stat().st_size if path.is_file() else 0

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Count one run more."""
        directory = Path(config.hydra.sweep.dir)
        if config.hydra.mode != RunMode.MULTIRUN or not (directory / PLAN).is_file():
            return
        plan = json.loads((directory / PLAN).read_text(encoding="utf-8"))
        with (directory / DONE).open("ab") as file:
            file.write(_outcome(config, self._recorded))
        cells = (directory / DONE).read_bytes()
        done, computed = len(cells), len(cells) - cells.count(b"r")
        seconds = (time.time() - plan["start"]) / max(computed, 1) * (plan["cells"] - done)
        # None are left or none was computed yet, or the clock was put back.
        left = f", about {duration(seconds)} left" if computed and seconds > 0 else ""
        failed = f", {of} failed" if (of := cells.count(b"f")) else ""
        log.info("%d of %d runs done%s%s", done, plan["cells"], failed, left)


def _tell_cost(config: DictConfig, cells: Sequence[Sequence[str]]) -> None:
    """Log how long the runs will take, if they run on this machine."""
    from robust_diffusion.records.content import code_hash
    from robust_diffusion.records.provenance import cpu_name, gpu_name

    launcher = config.hydra.launcher
    if not launcher._target_.endswith(("BasicLauncher", "ProcessLauncher")):
        return
    cores = os.cpu_count() or 1
    most = launcher.get("n_jobs", 1)
    places = max(1, min(len(cells), most if most > 0 else cores + 1 + most))
    on_cpu = config.trainer.get("accelerator") == "cpu"
    machine = (None if on_cpu else gpu_name()) or cpu_name()
    records = read_records(config.paths.records, containing=f'"{machine}', missing_ok=True)
    own = [of for of in records if str(of.get("processor")).partition(", ")[0] == machine]
    chosen = config.hydra.runtime.choices, config.training
    overrides = [dict(of.lstrip("+").split("=", 1) for of in cell if "=" in of) for cell in cells]
    seconds, unlike = estimate([features(*chosen, of) for of in overrides], own, code_hash())
    if cells and unlike == len(cells):
        log.info("%d runs; no record of this machine tells how long they take", unlike)
        return
    some = f": {len(cells) - unlike} of them" if unlike else ","
    rest = f", {unlike} like none recorded" if unlike else ""
    time_, on = duration(seconds / places), f"{places} core{'s' * (places > 1)}"
    log.info("%d runs%s about %s on %s%s", len(cells), some, time_, on, rest)


def _outcome(config: DictConfig, start: int) -> bytes:
    """`r` of a run that left a reference to an older record, `f` of one that left an error.

    Its line is looked for from byte `start` of the records on.
    """
    path = Path(config.paths.records)
    own = os.path.relpath(config.hydra.runtime.output_dir, path.parent)
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        for line in file:
            with suppress(ValueError):  # of one in parallel that was killed
                record = json.loads(line)
                if record.get("directory") == own:
                    return b"r" if "reference" in record else b"f" if "error" in record else b"."
    return b"."


@contextmanager
def shown_progress(directory: Path) -> Iterator[None]:
    """Show, while the runs of a sweep go on here or elsewhere, how many are done."""
    stop = threading.Event()

    def watch(tell: Progress) -> None:
        ended = False
        while not ended:
            ended = stop.wait(1)
            cells = (directory / DONE).read_bytes()
            tell(len(cells) - tell.done, free=cells.count(b"r") - tell.free)

    if not (directory / PLAN).is_file():  # the callback was left out
        yield
        return
    plan = json.loads((directory / PLAN).read_text(encoding="utf-8"))
    with Progress("sweep", plan["cells"], "runs") as tell:
        watcher = threading.Thread(target=watch, args=(tell,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
