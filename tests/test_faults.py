"""Cells that are killed, hang or run out of memory: nothing is lost, doubled or wrong."""

import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.slow]

FAULTY = '''
import os, resource, signal, time
from pathlib import Path

import torch
from pytorch_lightning import Callback


class Fault(Callback):
    """A fault in the cell of each seed but 0, before its first epoch."""

    def __init__(self, seed):
        self.seed = seed

    def on_train_start(self, trainer, module):
        if self.seed == 1 and not Path("killed").exists():  # once
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.seed == 2:
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (2**36, before[1]))
            try:
                torch.ones(2**40)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
        if self.seed == 3:
            Path(f"hangs-{os.getpid()}").touch()
            time.sleep(600)
'''
LAUNCHERS = {
    "basic": None,
    "joblib": "cloudpickle",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
    "ray": "ray",
}
"""Per launcher, the module that it needs."""

EXAMPLES = {"joblib": "cores", "submitit_local": "slurm", "ray": "ray"}
"""Per launcher, the one whose example on the page about clusters it runs, on this machine."""

OF_A_CLUSTER = "hydra.launcher.partition"
"""Option of an example that this machine has not."""

OF_THE_RUN = ("time", "seconds", "directory")
"""Fields of a record that differ from run to run."""


def start(folder: Path, arguments: list[str]) -> "subprocess.Popen[str]":
    """A sweep of faulty cells, in a process of its own."""
    (folder / "faulty.py").write_text(FAULTY)
    source = Path(__file__).parents[1] / "src"
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "robust_diffusion.run", "-m", "flow=heat", "logger=none"),
            "+callbacks.fault={_target_: faulty.Fault, seed: ${seed}}",
            *arguments,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{source}{os.pathsep}{folder}"},
    )


def example(launcher: str) -> list[str]:
    """The options that the page about clusters gives a launcher."""
    page = Path(__file__).parents[1] / "docs" / "tutorials" / "cluster.md"
    text = page.read_text().replace("\\\n", " ")
    found = re.findall(r"python -m robust_diffusion\.run -m ([^\n`]*)", text)
    given = next(c.split() for c in found if f"hydra/launcher={EXAMPLES[launcher]} " in c)
    own = [option for option in given if option.startswith("hydra.launcher.")]
    assert own
    return [option for option in own if not option.startswith(OF_A_CLUSTER)]


def needs(launcher: str) -> None:
    module = LAUNCHERS[launcher]
    if module is not None and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


class Done(NamedTuple):
    status: int
    said: str
    records: list[dict[str, Any]]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Done]:
    """Runs the same sweep under a launcher, once: a cell that is done, killed, out of memory."""
    from tests.conftest import TINY_DATA, TINY_TRAINING

    @functools.cache
    def run(launcher: str) -> Done:
        needs(launcher)
        folder = tmp_path_factory.mktemp(launcher)
        if launcher == "basic":
            (folder / "killed").touch()  # its cells run in the sweep's own process
        own = ["attack=none", "seed=0,1,2", "time_limit=10000", f"hydra/launcher={launcher}"]
        own += example(launcher) if launcher in EXAMPLES else []
        process = start(folder, [*TINY_DATA, *TINY_TRAINING, *own])
        said, _ = process.communicate(timeout=600)
        lines = (folder / "outputs" / "records.jsonl").read_text().splitlines()
        records = sorted(map(json.loads, lines), key=lambda record: record["seed"])
        return Done(process.returncode, said, records)

    return run


def failures(said: str) -> list[str]:
    return [line[line.index("cell ") :] for line in said.splitlines() if " failed: " in line]


def result(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in OF_THE_RUN}


def test_a_cell_out_of_memory_is_one_failure(sweep: Callable[[str], Done]) -> None:
    done = sweep("basic")
    assert done.status == 1, done.said
    assert "Traceback" not in done.said
    (line,) = failures(done.said)
    assert line.startswith("cell 2 failed: out of memory")
    assert ["accuracy" in record for record in done.records] == [True, True, False]
    assert done.records[2]["error"] in line


def test_a_killed_process_fails_its_own_cell(sweep: Callable[[str], Done]) -> None:
    done = sweep("joblib")
    assert done.status == 1, done.said
    assert "Traceback" not in done.said
    killed = "cell 1 failed: its process was killed (SIGKILL), as for want of memory"
    assert killed in failures(done.said)
    assert len(done.records) == 3
    assert done.records[1]["error_kind"] == "WorkerError"
    assert f"cell 1 failed: {done.records[1]['error']}" == killed


@pytest.mark.parametrize("launcher", ["submitit_local", "ray"])
def test_a_killed_job_is_run_again(sweep: Callable[[str], Done], launcher: str) -> None:
    done = sweep(launcher)
    assert done.status == 1, done.said
    assert "Traceback" not in done.said
    assert ["accuracy" in record for record in done.records] == [True, True, False]


@pytest.mark.parametrize("launcher", [name for name in LAUNCHERS if name != "basic"])
def test_records_do_not_hang_on_the_launcher(sweep: Callable[[str], Done], launcher: str) -> None:
    expected, found = (
        [result(record) for record in sweep(name).records if "Worker" not in str(record)]
        for name in ("basic", launcher)
    )
    of = [record["seed"] for record in found]
    assert of == ([0, 2] if launcher == "joblib" else [0, 1, 2])
    assert found == [record for record in expected if record["seed"] in of]


@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        ("joblib", signal.SIGTERM),
        ("joblib", signal.SIGKILL),
        ("submitit_local", signal.SIGKILL),
        ("ray", signal.SIGKILL),
    ],
)
def test_no_process_outlives_its_sweep(
    tiny_clean: list[str], tmp_path: Path, launcher: str, number: signal.Signals
) -> None:
    needs(launcher)
    process = start(tmp_path, [*tiny_clean, "seed=3", f"hydra/launcher={launcher}"])
    wait_for(lambda: bool(list(tmp_path.glob("hangs-*"))) or process.poll() is not None)
    (hanging,) = [int(path.name.removeprefix("hangs-")) for path in tmp_path.glob("hangs-*")]
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    if number == signal.SIGTERM:
        assert process.returncode == 143, said
        assert said.splitlines()[-1].startswith("terminated: finished cells are recorded")
        assert "Traceback" not in said
    wait_for(lambda: not is_running(hanging), seconds=60)
    assert (tmp_path / "outputs" / "records.jsonl").read_text() == ""


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.is_file() and "zombie" not in status.read_text()
