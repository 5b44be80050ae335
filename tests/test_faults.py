"""Processes that are killed, terminated or out of memory: nothing is lost, doubled or wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.slow]

FAULTY = '''
import os, resource, signal, time
from pathlib import Path

import torch
from pytorch_lightning import Callback


class Fault(Callback):
    """A fault in the cell of one seed, before its first epoch."""

    def __init__(self, kind, seed, at):
        self.kind = kind if seed == at else None

    def on_train_start(self, trainer, module):
        if self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hangs":
            Path(f"hangs-{os.getpid()}").touch()
            time.sleep(600)
        if self.kind == "memory":
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (2**33, before[1]))
            try:
                torch.ones(2**36)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
'''

Sweep = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def sweep(tiny_clean: list[str], tmp_path: Path) -> Sweep:
    """Starts a sweep over seeds in a process of its own; the cell of seed 1 has the fault."""
    (tmp_path / "faulty.py").write_text(FAULTY)

    def start(kind: str, *overrides: str) -> "subprocess.Popen[str]":
        fault = f"+callbacks.fault={{_target_: faulty.Fault, kind: {kind}, seed: ${{seed}}, at: 1}}"
        command = [sys.executable, "-m", "robust_diffusion.run", "-m", "flow=heat", "logger=none"]
        return subprocess.Popen(
            [*command, *tiny_clean, fault, *overrides],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    return start


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "outputs" / "records.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda record: record["seed"])


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.is_file() and "zombie" not in status.read_text()


def test_a_killed_process_fails_its_own_cell(sweep: Sweep, tmp_path: Path) -> None:
    process = sweep("killed", "seed=0,1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if "failed:" in line]
    assert line == "cell 1 failed: its process was killed (SIGKILL), as for want of memory"
    first, failed, last = records(tmp_path)
    assert first["accuracy"]
    assert last["accuracy"]
    assert (failed["error_kind"], failed["seed"]) == ("WorkerError", 1)
    assert f"cell 1 failed: {failed['error']}" == line


@pytest.mark.parametrize(
    ("launcher", "number"),
    [("basic", signal.SIGTERM), ("joblib", signal.SIGTERM), ("joblib", signal.SIGKILL)],
)
def test_no_process_outlives_its_sweep(
    sweep: Sweep, tmp_path: Path, launcher: str, number: signal.Signals
) -> None:
    own = [] if launcher == "basic" else ["hydra.launcher.n_jobs=1"]
    process = sweep("hangs", "seed=0,1", f"hydra/launcher={launcher}", *own)
    wait_for(lambda: bool(list(tmp_path.glob("hangs-*"))) or process.poll() is not None)
    (hanging,) = [int(path.name.removeprefix("hangs-")) for path in tmp_path.glob("hangs-*")]
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    if number == signal.SIGTERM:
        assert process.returncode == 143, said
        assert said.splitlines()[-1].startswith("terminated: finished cells are recorded")
        assert "Traceback" not in said
    wait_for(lambda: not is_running(hanging), seconds=60)
    (done,) = records(tmp_path)
    assert (done["seed"], "accuracy" in done) == (0, True)


def test_a_cell_out_of_memory_is_one_failure(sweep: Sweep, tmp_path: Path) -> None:
    process = sweep("memory", "seed=1,2")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if "failed:" in line]
    assert line.startswith("cell 0 failed: out of memory")
    failed, done = records(tmp_path)
    assert failed["error"] in line
    assert done["accuracy"]
