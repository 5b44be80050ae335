"""Progress of a sweep: a header, what its runs share, a line per run, and the time left."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig
from tqdm import tqdm

from robust_diffusion.experiment.estimate import estimate, features
from robust_diffusion.records.records import read_records
from robust_diffusion.results.captions import describe_limits, differing_keys, ranges
from robust_diffusion.system.progress import LineHandler, Progress, about, duration

PLAN = "progress.json"
NEWS = ".progress.jsonl"

DIFFICULTIES = {"easy": "lowest degree", "medium": "middle degree", "hard": "highest degree"}

_TEXT = logging.Formatter()


class SweepProgress(Callback):
    """Collects what the runs of a sweep report, in a file that `sweep_progress` prints.

    Runs may be parallel, in other processes or on other machines, so none of them writes to the
    terminal. To that file go warnings, what several runs share (`extra={"shared": True}`), and how
    a run ends (`extra={"end": "..."}`); all else is in the run's log alone.
    """

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Divert the run's log from the terminal."""
        self._start, self._news = time.monotonic(), Path(config.hydra.sweep.dir) / NEWS
        if config.hydra.mode != RunMode.MULTIRUN or not self._news.is_file():
            return
        plan = json.loads(self._news.with_name(PLAN).read_text(encoding="utf-8"))
        name = _name(_by_key(config.hydra.overrides.task), plan["swept"], config)
        count = len(plan["weights"])
        Progress.label = f"[{config.hydra.job.num + 1:>{len(str(count))}}/{count}] "
        self._name = f"{Progress.label}{name:<{plan['width']}}"
        self._end, self._reused = "done", False
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LineHandler):
                handler.addFilter(self._collect)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Report the end of a run."""
        if Progress.label:
            seconds = "" if self._reused else duration(time.monotonic() - self._start)
            text = f"{self._name}  {self._end:<32} {seconds:>11}"
            self._add(text, run=config.hydra.job.num, reused=self._reused)
            Progress.label = ""

    def _collect(self, record: logging.LogRecord) -> bool:
        warns, shared = record.levelno >= logging.WARNING, getattr(record, "shared", None)
        if end := getattr(record, "end", None):
            self._end, self._reused = end, hasattr(record, "reused")
        elif shared or (warns and shared is None):
            name = "" if shared else f"{self._name.strip()}: "
            self._add(f"{'  ⚠' if warns else 'shared '} {name}{_TEXT.format(record)}")
        return False

    def _add(self, text: str, **more: Any) -> None:
        with self._news.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps({'text': text, **more})}\n")


@contextmanager
def sweep_progress(
    config: DictConfig,
    overrides: Sequence[Sequence[str]],
    *,
    is_first: bool = True,
    total: int | None = None,
    swept: Sequence[str] | None = None,
) -> Iterator[None]:
    """Print a sweep's header, and until the block ends what its runs report.

    Args:
        config: That of the sweep.
        overrides: Those of each run launched in the block.
        is_first: False for further runs of the same sweep.
        total: Number of all runs, if others follow.
        swept: Keys that differ between runs; `None` for those of `overrides`.
    """
    if not overrides or not config.hydra.callbacks.get("progress"):
        yield
        return
    news, runs = Path(config.hydra.sweep.dir) / NEWS, list(map(_by_key, overrides))
    if is_first:
        keys = differing_keys(runs) if swept is None else list(swept)
        seconds, cores = _expected(config, runs)
        known = [s for s in seconds if s] or [1.0]
        typical, missing = sum(known) / len(known), (total or 0) - len(runs)
        weights = [typical if s is None else s for s in seconds] + [typical] * missing
        width = max(len(_name(run, keys, config)) for run in runs)
        plan = {"swept": keys, "weights": weights, "start": time.monotonic(), "width": width}
        news.with_name(PLAN).write_text(json.dumps(plan), encoding="utf-8")
        news.write_bytes(b"")
        took = f"{about(sum(weights) / cores)} on {cores} core{'s' * (cores > 1)}"
        _write(_header(config, runs, plan, took if any(seconds) else ""))
    stop = threading.Event()
    printer = threading.Thread(target=_print_news, args=(news, stop), daemon=True)
    printer.start()
    try:
        yield
    finally:
        stop.set()
        printer.join()
        Progress.label = ""  # of a run that was interrupted


def _print_news(news: Path, stop: threading.Event) -> None:
    """Print each text once, and after each run the time left, until `stop` is set."""
    plan = json.loads(news.with_name(PLAN).read_text(encoding="utf-8"))
    weights, shown, computed, ended = plan["weights"], set[str](), 0.0, False
    left = sum(weights)
    with (
        news.open(encoding="utf-8") as file,
        Progress("sweep", len(weights), "runs", lines=False) as tell,
    ):
        earlier = file.seek(0, os.SEEK_END)  # of the runs of an earlier launch
        file.seek(0)
        while not ended:
            ended = stop.wait(0.2)
            while (line := file.readline()).endswith("\n"):
                entry = json.loads(line)
                text = entry["text"]
                if (run := entry.get("run")) is not None:
                    left -= weights[run]
                    computed += 0 if entry["reused"] else weights[run]
                    rest = (time.monotonic() - plan["start"]) * left / (computed or 1)
                    tell(1, left=rest if computed else None)
                    more = computed and tell.done < len(weights)
                    text += f"   {about(rest)} left" if more else ""
                if file.tell() > earlier and entry["text"] not in shown:
                    _write(text.rstrip())
                shown.add(entry["text"])
            file.seek(file.tell() - len(line))  # a line that is half written


def _write(text: str) -> None:
    tqdm.write(text, file=sys.stderr)


def _by_key(overrides: Sequence[str]) -> dict[str, str]:
    return dict(override.lstrip("+").partition("=")[::2] for override in overrides)


def _name(run: Mapping[str, str], swept: Sequence[str], config: DictConfig) -> str:
    """Return what tells a run from the others of its sweep: `heat step_size=0.5 seed=0`."""
    parts = [
        f"{key.rpartition('.')[2]}={run[key]}" if "." in key or key == "seed" else run[key]
        for key in swept
        if key in run
    ]
    choices = config.hydra.runtime.choices
    return " ".join(parts) or str(choices.flow if "flow" in config.model else choices.model)


def _expected(
    config: DictConfig, runs: Sequence[Mapping[str, str]]
) -> tuple[list[float | None], int]:
    """Return the seconds of each run by this machine's records, and the runs at a time."""
    from robust_diffusion.records.content import code_hash
    from robust_diffusion.records.provenance import cpu_name, gpu_name

    launcher, cores = config.hydra.launcher, os.cpu_count() or 1
    if not launcher._target_.endswith(("BasicLauncher", "ProcessLauncher")):
        return [None] * len(runs), 1
    most, on_cpu = launcher.get("n_jobs", 1), config.trainer.get("accelerator") == "cpu"
    machine = (None if on_cpu else gpu_name()) or cpu_name()
    records = read_records(config.paths.records, containing=f'"{machine}', missing_ok=True)
    on_machine = [r for r in records if str(r.get("processor")).partition(", ")[0] == machine]
    chosen = config.hydra.runtime.choices, config.training
    seconds = estimate([features(*chosen, run) for run in runs], on_machine, code_hash())
    return seconds, max(1, min(len(runs), most if most > 0 else cores + 1 + most))


def _header(
    config: DictConfig, runs: Sequence[Mapping[str, str]], plan: Mapping[str, Any], took: str
) -> str:
    """Return what the runs of a sweep are about, in two lines."""
    choices, swept = config.hydra.runtime.choices, plan["swept"]

    def listed(key: str, default: Any) -> str:
        return ", ".join(dict.fromkeys(run.get(key, str(default)).strip("[]") for run in runs))

    count, difficulty = len(plan["weights"]), listed("difficulty", config.difficulty)
    nodes = f" ({DIFFICULTIES[difficulty]})" if difficulty in DIFFICULTIES else ""
    first = [
        f"{count} run{'s' * (count > 1)}" + (f" over {' × '.join(swept)}" if swept else ""),
        listed("dataset", choices.dataset),
        f'"{difficulty}" test nodes{nodes}',
        f"seed {listed('seed', config.seed)}",
        took,
    ]
    threat = listed("threat", choices.threat)
    surrogates = listed("surrogate", ", ".join(config.surrogates))
    via = f" via {surrogates}" if config.threat.get("surrogates") else ""
    attacks = listed("attack", ", ".join(config.attacks))
    second = [] if config.timing or attacks in ("", "none") else [f"{threat}{via}", attacks]
    if second and not any(key.startswith(("attack", "dataset", "budget")) for key in swept):
        with suppress(ImportError, AttributeError, ValueError, KeyError):  # the run reports it
            kinds = {resolve_name(attack._target_).kind for attack in config.attacks.values()}
            counts = {"injection": "injected_nodes", "modification": "added_edges"}
            spent = [counts[kind] for kind in kinds]
            second.append(f"≤ {describe_limits(ranges([config.budget]), spent)}")
    if "flow" in config.model or "model" in swept:
        steps = config.solver.get("num_steps")
        fixed = steps and not any(key.startswith("solver") for key in swept)
        second.append(
            listed("solver", choices.solver)
            + (f", {steps} step{'s' * (steps != 1)}" if fixed else "")
        )
    return "\n".join(" · ".join(filter(None, line)) for line in (first, second) if line) + "\n"
