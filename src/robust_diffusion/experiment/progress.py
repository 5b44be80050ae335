"""Progress of a sweep: a header, common messages, a line per run, and the time left."""

import json
import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.records.provenance import cpu_name, gpu_name
from robust_diffusion.records.records import Record, read_records
from robust_diffusion.results.captions import describe_limits, differing_keys, ranges
from robust_diffusion.system.cores import usable_cores
from robust_diffusion.system.progress import LineHandler, Progress, about, duration

PLAN, NEWS = "progress.json", ".progress.jsonl"
ALIKE = ("dataset", "model", "flow", "training.max_epochs")
"""Settings that must be equal for the times of two runs to be compared."""
CHOICES = (*ALIKE, "solver", "threat", "fidelity")
IDLE = ("experiment", "logger", "callbacks", "force", "trainer", "threads", "paths", "hydra")
"""Keys that do not change results by themselves."""
DIFFICULTIES = {"easy": "lowest degree", "medium": "middle degree", "hard": "highest degree"}


class SweepProgress(Callback):
    """Callback that collects messages of a sweep's runs in a file, which `SweepReport` prints.

    Runs may be parallel, in other processes or on other machines, so none of them writes to the
    terminal. The file receives warnings, messages common to several runs
    (`extra={"shared": True}`), and the result of a run (`extra={"end": "..."}`). Everything else is
    only in the run's log.
    """

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Divert the run's log from the terminal."""
        self._start, self._news = time.monotonic(), Path(config.hydra.sweep.dir) / NEWS
        if config.hydra.mode != RunMode.MULTIRUN or not self._news.is_file():
            return
        plan = json.loads(self._news.with_name(PLAN).read_text(encoding="utf-8"))
        name = _name(_by_key(config.hydra.overrides.task), plan["swept"], config)
        count = plan["count"]
        Progress.label = f"[{config.hydra.job.num + 1:>{len(str(count))}}/{count}] "
        self._name, self._end = f"{Progress.label}{name:<{plan['width']}}", "done"
        self._reused = False
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
            text = logging.Formatter().format(record)
            self._add(f"{'  ⚠' if warns else 'shared '} {name}{text}")
        return False

    def _add(self, text: str, **more: Any) -> None:
        with self._news.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps({'text': text, **more})}\n")


class SweepReport:
    """Printer of a sweep's header, and of the messages of its runs.

    Args:
        config: Configuration of the sweep.
    """

    def __init__(self, config: DictConfig) -> None:
        self._config = config
        self._news = Path(config.hydra.sweep.dir) / NEWS
        self._weights: list[float] = []
        self._shown: set[str] = set()
        self._done, self._computed, self._left, self._read = 0, 0.0, 0.0, 0

    @contextmanager
    def printing(self, overrides: Sequence[Sequence[str]]) -> Iterator[None]:
        """Print the messages of runs with these overrides until the `with` block ends."""
        if not overrides or not self._config.hydra.callbacks.get("progress"):
            yield
            return
        if not self._weights:
            self._begin(list(map(_by_key, overrides)))
        stop = threading.Event()
        printer = threading.Thread(target=self._print_news, args=(stop,), daemon=True)
        printer.start()
        try:
            yield
        finally:
            stop.set()
            printer.join()
            Progress.label = ""  # an interrupted run leaves its label

    def _begin(self, runs: Sequence[Mapping[str, str]]) -> None:
        """Print the header, and write the plan from which the runs build their names."""
        swept = differing_keys(runs)
        seconds, cores = expected_seconds(self._config, runs)
        known = [s for s in seconds if s] or [1.0]
        typical = sum(known) / len(known)
        self._weights = [typical if s is None else s for s in seconds]
        self._left, self._start, count = sum(self._weights), time.monotonic(), len(self._weights)
        width = max(len(_name(run, swept, self._config)) for run in runs)
        plan = {"swept": swept, "count": count, "width": width}
        self._news.with_name(PLAN).write_text(json.dumps(plan), encoding="utf-8")
        self._news.write_bytes(b"")
        took = f"{about(self._left / cores)} on {cores} core{'s' * (cores > 1)}"
        self._write(_header(self._config, runs, plan, took if any(seconds) else ""))

    def _print_news(self, stop: threading.Event) -> None:
        """Print every distinct text once, and the time left after each run, until `stop` is set."""
        total, ended = len(self._weights), False
        with (
            self._news.open(encoding="utf-8") as file,
            Progress("sweep", total, "runs", lines=False) as tell,
        ):
            file.seek(self._read)
            while not ended:
                ended = stop.wait(0.2)
                while (line := file.readline()).endswith("\n"):
                    self._read, entry = file.tell(), json.loads(line)
                    text = entry["text"]
                    if (run := entry.get("run")) is not None:
                        self._done, self._left = self._done + 1, self._left - self._weights[run]
                        self._computed += 0 if entry["reused"] else self._weights[run]
                        rest = (time.monotonic() - self._start) * self._left / (self._computed or 1)
                        tell(self._done - tell.done, left=rest if self._computed else None)
                        more = self._computed and self._done < total
                        text += f"   {about(rest)} left" if more else ""
                    if entry["text"] not in self._shown:
                        self._write(text.rstrip())
                    self._shown.add(entry["text"])
                file.seek(self._read)  # back to the start of a line that is half written

    def _write(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)


def _by_key(overrides: Sequence[str]) -> dict[str, str]:
    # Sweepers escape colons in values; records do not.
    parts = (override.replace("\\:", ":").lstrip("+") for override in overrides)
    return dict(part.partition("=")[::2] for part in parts)


def _name(run: Mapping[str, str], swept: Sequence[str], config: DictConfig) -> str:
    """Return a name for a run that is unique in its sweep, such as `heat step_size=0.5 seed=0`."""
    parts = [
        f"{key.rpartition('.')[2]}={run[key]}" if "." in key or key == "seed" else run[key]
        for key in swept
        if key in run
    ]
    choices = config.hydra.runtime.choices
    return " ".join(parts) or str(choices.flow if "flow" in config.model else choices.model)


def expected_seconds(
    config: DictConfig, runs: Sequence[Mapping[str, str]]
) -> tuple[list[float | None], int]:
    """Estimate the seconds of each run from this machine's records; also count parallel runs.

    The estimate is the mean over the records that differ in the fewest settings. It is 0 if the run
    itself is recorded, and `None` without a record of the same dataset, model and flow.
    """
    launcher, cores = config.hydra.launcher, usable_cores()
    if not launcher._target_.endswith(("BasicLauncher", "ProcessLauncher")):
        return [None] * len(runs), 1
    most, on_cpu = launcher.get("n_jobs", 1), config.trainer.get("accelerator") == "cpu"
    machine = (None if on_cpu else gpu_name()) or cpu_name()
    records = read_records(config.paths.records, containing=f'"{machine}', missing_ok=True)
    known = [
        (_settings(r, r["config"]["training"].get("max_epochs"), r["overrides"]), _spent(r))
        for r in records
        if str(r.get("processor")).partition(", ")[0] == machine and "training" in r["config"]
    ]
    estimates: list[float | None] = []
    for run in runs:
        mine = _settings(config.hydra.runtime.choices, config.training.get("max_epochs"), run)
        near: dict[int, list[float]] = defaultdict(list)
        for settings, seconds in known:
            other = {key: mine[key] for key in CHOICES if key in mine} | settings
            if all(other.get(key) == mine.get(key) for key in ALIKE):
                differing = {key for key, _ in mine.items() ^ other.items()}
                near[len(differing - {"seed"})].append(seconds if differing else 0.0)
        nearest = near[min(near)] if near else []
        mean = sum(nearest) / len(nearest) if nearest else None
        estimates.append(0.0 if 0.0 in nearest else mean)
    return estimates, max(1, min(len(runs), most if most > 0 else cores + 1 + most))


def _settings(choices: Any, max_epochs: int | None, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that distinguish runs: choices and overrides, as text."""
    values = {key: choices.get(key) for key in CHOICES} | {"training.max_epochs": max_epochs}
    values |= {k: v for k, v in overrides.items() if k.partition(".")[0] not in IDLE}
    return {key: str(value) for key, value in values.items() if value is not None}


def _spent(record: Record) -> float:
    """Return the seconds that a run spent itself, without reused parts."""
    reused = {"train" if name == "victim" else name for name in record.get("reused", ())}
    seconds = {key: s for key, s in record.get("seconds", {}).items() if key not in reused}
    return float(sum(seconds.values()))


def _difficulty(run: Mapping[str, str], config: DictConfig) -> str:
    """Return the difficulty of the run's dataset; "" for a custom dataset."""
    composed = config.hydra.runtime.choices.dataset
    name = run.get("dataset", composed)
    if name == composed or not OmegaConf.is_interpolation(config, "difficulty"):
        return str(config.difficulty)
    path = CONFIG_DIR / "dataset" / f"{name}.yaml"
    return str(read_yaml(path)["difficulty"]) if path.is_file() else ""


def _header(
    config: DictConfig, runs: Sequence[Mapping[str, str]], plan: Mapping[str, Any], took: str
) -> str:
    """Summarise the runs of a sweep in two lines."""
    choices, swept, count = config.hydra.runtime.choices, plan["swept"], plan["count"]

    def listed(key: str, default: Any) -> str:
        return ", ".join(dict.fromkeys(run.get(key, str(default)).strip("[]") for run in runs))

    difficulties = [run.get("difficulty") or _difficulty(run, config) for run in runs]
    difficulty = ", ".join(dict.fromkeys(map(str, difficulties))).strip("[]")
    nodes = f" ({DIFFICULTIES[difficulty]})" if difficulty in DIFFICULTIES else ""
    first = [
        f"{count} run{'s' * (count > 1)}" + (f" over {' × '.join(swept)}" if swept else ""),
        listed("dataset", choices.dataset),
        f'"{difficulty}" test nodes{nodes}' if all(difficulties) else "",
        f"seed {listed('seed', config.seed)}",
        took,
    ]
    second: list[str] = []
    attacks = listed("attack", ", ".join(config.attacks))
    if not config.timing and attacks not in ("", "none"):
        surrogates = listed("surrogate", ", ".join(config.surrogates))
        threats = listed("threat", choices.threat)
        has_any = config.threat.get("surrogates") and choices.threat in threats.split(", ")
        second = [f"{threats} via {surrogates}" if has_any else threats, attacks]
        if not any(key.startswith(("attack", "dataset", "budget")) for key in swept):
            with suppress(ImportError, AttributeError, ValueError, KeyError):  # the run reports it
                counts = {"injection": "injected_nodes", "modification": "added_edges"}
                spent = [counts[resolve_name(a._target_).kind] for a in config.attacks.values()]
                second.append(f"≤ {describe_limits(ranges([config.budget]), spent)}")
    if "flow" in config.model or "model" in swept:
        steps = config.solver.get("num_steps")
        is_fixed = steps and not any(key.startswith("solver") for key in swept)
        number = f", {steps} step{'s' * (steps != 1)}" if is_fixed else ""
        second.append(f"{listed('solver', choices.solver)}{number}")
    return "\n".join(" · ".join(filter(None, line)) for line in (first, second) if line) + "\n"
