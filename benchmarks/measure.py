"""How the benchmarks measure: by turns, medians, and memory in a process of its own."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

MEGABYTE = 1e6


def by_turns(
    runs: Mapping[str, Callable[[], object]],
    *,
    repeat: int,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each run, all of them taking turns so that a busy machine slows all alike.

    Args:
        runs: What to time, by name.
        repeat: Rounds that count.
        warm_up: Rounds before that do not.
        clock: `time.process_time` for that of the processor, which waits for no one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(warm_up + repeat):
        for name, run in runs.items():
            start = clock()
            run()
            if turn >= warm_up:
                seconds[name].append(clock() - start)
    return seconds


def summary(seconds: list[float]) -> dict[str, float]:
    """Median and quartiles, in ms."""
    low, _, high = quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    return {"median_ms": 1e3 * median(seconds), "q1_ms": 1e3 * low, "q3_ms": 1e3 * high}


class PeakGrowth:
    """Megabytes by which this process's memory grew at most, within a `with` block (Linux)."""

    def __enter__(self) -> "PeakGrowth":
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.megabytes = (_status("VmHWM") - self._before) / MEGABYTE


def in_own_process(
    script: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Any:
    """Run a script of this folder that prints one JSON line last, and return that.

    Args:
        script: Name of its file.
        arguments: Of its command line.
        environment: Variables that it gets besides ours.
    """
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | (environment or {}),
    )
    return json.loads(result.stdout.splitlines()[-1])


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "allocator": os.environ.get("LD_PRELOAD") or "the C library's",
    }


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024
