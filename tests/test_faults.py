"""Runs that are killed, hang or run out of memory or disk: nothing is lost, doubled or wrong."""

import collections
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.records import Record, read_records
from tests.conftest import TINY_CLEAN, TINY_DATA

pytestmark = pytest.mark.faults

Cli = Callable[..., Any]
FAULTY = '''
import os, resource, signal, time
from pathlib import Path

import torch
from pytorch_lightning import Callback


class Fault(Callback):
    """A fault, once, in the run of each seed but 0, before its first epoch."""

    def __init__(self, seed):
        self.seed = seed

    def on_train_start(self, trainer, module):
        note = Path(f"fault-{self.seed}")
        if self.seed == 0 or note.exists():
            return
        note.write_text(str(os.getpid()))
        if self.seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.seed == 2:
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (2**36, before[1]))
            try:
                torch.ones(2**40)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
        if self.seed == 3:
            time.sleep(600)
'''
LAUNCHERS = {
    "cores": ("joblib", "cores"),
    "local": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    "ray": ("hydra_plugins.hydra_ray_launcher", "ray"),
}
"""Per launcher, the module that it needs, and whose example on the page about clusters it runs."""

OF_THE_RUN = ("time", "seconds", "directory", "job", "overrides")
"""Fields of a record that differ from run to run."""

SWEEP = [
    *("-m", "flow=heat", "logger=none", "attack=none", *TINY_DATA, *TINY_CLEAN),
    "+callbacks.fault={_target_: faulty.Fault, seed: ${seed}}",
]


@pytest.fixture
def _faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "faulty", raising=False)


def start(*arguments: str) -> "subprocess.Popen[str]":
    """A sweep in a process group of its own."""
    path = os.pathsep.join([str(Path(__file__).parents[1] / "src"), str(Path.cwd())])
    return subprocess.Popen(
        [sys.executable, "-m", "robust_diffusion.run", *SWEEP, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and hand that on to all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def example(launcher: str) -> list[str]:
    """The options that the page about clusters gives a launcher."""
    page = Path(__file__).parents[1] / "docs" / "guides" / "sweeps.md"
    text = page.read_text().replace("\\\n", " ")
    found = re.findall(r"python -m robust_diffusion\.run -m ([^\n`]*)", text)
    given = next(c.split() for c in found if f"hydra/launcher={LAUNCHERS[launcher][1]} " in c)
    own = [option for option in given if option.startswith("hydra.launcher.")]
    assert own
    return [f"hydra/launcher={launcher}", *(o for o in own if "partition" not in o)]


def recorded(folder: str | Path = "outputs") -> list[Record]:
    return read_records(Path(folder, "records"), missing_ok=True)


def result(record: Record) -> dict[str, Any]:
    return record.model_dump(exclude={*OF_THE_RUN})


def assert_kept(before: list[Record], after: list[Record]) -> None:
    by_run = {record.run: result(record) for record in after}
    assert all(by_run[record.run] == result(record) for record in before if record.accuracy)


def assert_each_done_once(records: list[Record], seeds: list[int]) -> None:
    done = collections.Counter(r.seed for r in records if r.accuracy)
    assert done == dict.fromkeys(seeds, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("_faulty")
def test_a_cell_out_of_memory_is_one_failure_and_is_tried_again(cli: Cli) -> None:
    first = cli(*SWEEP, "seed=2,0")
    assert first.status == 1
    assert "Traceback" not in first.err
    (line,) = [line for line in first.err.splitlines() if " failed: " in line]
    assert line.startswith("[1/2] seed=2  failed: out of memory")
    failed, done = first.records
    assert failed.error in line
    assert done.accuracy
    again = cli(*SWEEP, "seed=2,0")
    assert again.status == 0
    assert_each_done_once(again.records, [0, 2])


@pytest.mark.slow
@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_killed_cell_is_run_again_whatever_the_launcher(cli: Cli, launcher: str) -> None:
    if importlib.util.find_spec(LAUNCHERS[launcher][0]) is None:
        pytest.skip(f"{LAUNCHERS[launcher][0]} is not installed")
    process = start("seed=0,1", "time_limit=10000", *example(launcher))
    said, _ = process.communicate(timeout=600)
    assert process.returncode == (0 if launcher == "ray" else 1), said
    assert "Traceback" not in said
    before = recorded()
    if launcher == "cores":
        (failed,) = [record for record in before if record.error]
        assert (failed.seed, failed.error_kind) == (1, "WorkerError")
        assert f"[2/2] seed=1  failed: {failed.error}" in said
    again = cli(*SWEEP, "seed=0,1", "time_limit=10000")
    assert again.status == 0, again.err
    assert_kept(before, again.records)
    assert_each_done_once(again.records, [0, 1])
    assert cli(*SWEEP, "seed=0", "time_limit=10000", "paths.outputs=alone").status == 0
    (alone,) = recorded("alone")
    (first,) = (r for r in before if r.accuracy and r.seed == 0)
    assert result(first) == result(alone)


@pytest.mark.slow
@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize(
    ("launcher", "seeds", "number", "status"),
    [
        ("basic", [0, 3], signal.SIGTERM, 143),
        ("cores", [3], signal.SIGINT, 130),
        ("cores", [3], signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_sweep_that_is_ended_leaves_no_process_and_is_taken_up_where_it_was(
    cli: Cli, launcher: str, seeds: list[int], number: signal.Signals, status: int
) -> None:
    swept = f"seed={','.join(map(str, seeds))}"
    process = start(swept, f"hydra/launcher={launcher}")
    note = Path("fault-3")
    wait_for(lambda: process.poll() is not None or (note.is_file() and note.read_text() != ""))
    assert process.poll() is None, process.communicate()[0]
    if number == signal.SIGINT:  # as a terminal does
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    said, _ = process.communicate(timeout=150)
    assert process.returncode == status, said
    assert "Traceback" not in said
    hanging = int(note.read_text())
    wait_for(lambda: not is_running(hanging), seconds=30)
    before = recorded()
    assert_each_done_once(before, seeds[:-1])
    again = cli(*SWEEP, swept)
    assert again.status == 0, again.err
    assert_kept(before, again.records)
    assert_each_done_once(again.records, seeds)
    assert [row["seeds"] for row in again.table] == [str(len(seeds))]


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.is_file() and "zombie" not in status.read_text()
