"""Measurement of time (in turn, as medians) and of memory (in a separate process)."""

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
    """Time functions in turn, so that a busy machine slows all of them equally.

    Args:
        runs: Name -> function to time.
        repeat: Number of timed rounds.
        warm_up: Number of rounds before them that are not timed.
        clock: Clock in seconds; `time.process_time` measures CPU time, without waits.

    Returns:
        Name -> seconds of each timed round.
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
    """Return the median and quartiles, in ms."""
    low, _, high = quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    return {"median_ms": 1e3 * median(seconds), "q1_ms": 1e3 * low, "q3_ms": 1e3 * high}


class PeakGrowth:
    """Peak growth of this process's memory in a `with` block, in MB (Linux)."""

    def __enter__(self) -> "PeakGrowth":
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.megabytes = (_status("VmHWM") - self._before) / MEGABYTE


def in_own_process(script: str, *arguments: str) -> Any:
    """Run a script of this folder in a new process, and return its last line, parsed as JSON.

    Args:
        script: File name of the script.
        arguments: Command-line arguments.
    """
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def machine() -> dict[str, Any]:
    """Describe the machine and software on which the results depend."""
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
