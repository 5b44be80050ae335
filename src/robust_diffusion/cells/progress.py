"""Progress of a sweep: what it will cost, how far it is, and a bar."""

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from robust_diffusion.cells.sweeper import planned_cells
from robust_diffusion.records.records import read_records
from robust_diffusion.system.progress import Progress, duration

log = logging.getLogger(__name__)

PLAN = "progress.json"
DONE = ".cells-done"


class SweepProgress(Callback):
    """Logs after each cell of a sweep how many are done, of how many, and the time left.

    The count lies in the sweep's folder, one byte per cell, since cells may run side by side in
    processes of their own: `.`, or `r` of a cell that was done before, which tells nothing of how
    long one takes.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Count the cells to come."""
        directory = Path(config.hydra.sweep.dir)
        directory.mkdir(parents=True, exist_ok=True)
        # A sweeper that searches has a number of trials and no plan.
        cells = config.hydra.sweeper.get("n_trials") or len(planned_cells(config))
        plan = {"cells": cells, "start": time.time()}
        (directory / PLAN).write_text(json.dumps(plan), encoding="utf-8")
        (directory / DONE).write_bytes(b"")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Count one cell more."""
        directory = Path(config.hydra.sweep.dir)
        if config.hydra.mode != RunMode.MULTIRUN or not (directory / PLAN).is_file():
            return
        plan = json.loads((directory / PLAN).read_text(encoding="utf-8"))
        with (directory / DONE).open("ab") as file:
            file.write(b"r" if _was_done_before(config) else b".")
        cells = (directory / DONE).read_bytes()
        done, computed = len(cells), cells.count(b".")
        seconds = (time.time() - plan["start"]) / max(computed, 1) * (plan["cells"] - done)
        # None are left or none was computed yet, or the clock was put back.
        left = f", about {duration(seconds)} left" if computed and seconds > 0 else ""
        log.info("%d of %d cells done%s", done, plan["cells"], left)


def _was_done_before(config: DictConfig) -> bool:
    """True of a cell that left a reference to an older record, and no record of its own."""
    path = Path(config.paths.records)
    own = os.path.relpath(config.hydra.runtime.output_dir, path.parent)
    lines = read_records(path, containing='"reference": true', missing_ok=True)
    return any(line.get("directory") == own for line in lines)


@contextmanager
def shown_progress(directory: Path) -> Iterator[None]:
    """Show, while the cells of a sweep run here or elsewhere, how many are done."""
    stop = threading.Event()

    def watch(tell: Progress) -> None:
        ended = False
        while not ended:
            ended = stop.wait(1)
            cells = (directory / DONE).read_bytes()
            tell(len(cells) - tell.done, free=cells.count(b"r") - tell.free)

    plan = json.loads((directory / PLAN).read_text(encoding="utf-8"))
    with Progress("sweep", plan["cells"], "cells") as tell:
        watcher = threading.Thread(target=watch, args=(tell,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
