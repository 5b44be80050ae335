"""A sweep that is killed is taken up again: nothing is lost, nothing is done twice."""

import collections
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FLOWS = ("heat", "grand", "mean_curvature")


@pytest.fixture
def sweep(tiny_clean: list[str], tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a sweep over the flows in a process of its own."""

    def start(*overrides: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                *("-m", "robust_diffusion.run", "-m", f"flow={','.join(FLOWS)}", "logger=none"),
                *tiny_clean,
                *overrides,
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    return start


def finished(records: list[dict[str, Any]]) -> collections.Counter[str]:
    return collections.Counter(r["flow"] for r in records if "accuracy" in r)


@pytest.mark.slow
@pytest.mark.faults
def test_a_killed_sweep_is_taken_up_where_it_was(
    sweep: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    from robust_diffusion.evaluation import read_records

    path = tmp_path / "outputs" / "records.jsonl"
    first = sweep()
    deadline = time.monotonic() + 120
    while not (path.is_file() and path.read_bytes().count(b"\n")):
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = read_records(path)
    assert 1 <= len(before) < len(FLOWS)

    second = sweep()
    out, _ = second.communicate(timeout=240)
    assert second.returncode == 0, out
    records = read_records(path)
    assert records[: len(before)] == before
    assert finished(records) == dict.fromkeys(FLOWS, 1)
    assert sum("reference" in r for r in records) == len(before)
    for flow in FLOWS:
        assert f"| {flow}" in out
    assert "3 of 3 cells done" in out


@pytest.mark.slow
@pytest.mark.faults
def test_two_sweeps_in_one_folder_compute_each_cell_once(
    sweep: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    from robust_diffusion.evaluation import read_records

    sweeps = [sweep(), sweep()]
    said = [process.communicate(timeout=400)[0] for process in sweeps]
    assert [process.returncode for process in sweeps] == [0, 0], said
    records = read_records(tmp_path / "outputs" / "records.jsonl")
    assert finished(records) == dict.fromkeys(FLOWS, 1)
    assert sum("reference" in r for r in records) == len(records) - len(FLOWS) == len(FLOWS)
    assert all(f"| {flow}" in out for out in said for flow in FLOWS)
    assert sorted(path.name for path in (tmp_path / "outputs").glob(".*")) == []


def test_force_repeats_what_is_done(cli: Callable[..., Any], tiny_clean: list[str]) -> None:
    first = cli("flow=heat", *tiny_clean)
    again = cli("flow=heat", *tiny_clean)
    forced = cli("--force", "flow=heat", *tiny_clean)
    assert [("accuracy" in r, "reference" in r) for r in forced.records] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert first.table == again.table == forced.table
    done, _, repeated = forced.records
    assert done["cell"] == repeated["cell"]
    assert done["accuracy"] == repeated["accuracy"]
    assert repeated["reused"] == []


def test_a_failed_cell_is_tried_again(cli: Callable[..., Any], tiny_clean: list[str]) -> None:
    broken = cli("-m", "flow=heat", *tiny_clean, "training.learning_rate=1e30")
    again = cli("-m", "flow=heat", *tiny_clean, "training.learning_rate=1e30")
    assert (broken.status, again.status) == (1, 1)
    assert [record["error_kind"] for record in again.records] == ["TrainingError"] * 2
    assert len({record["cell"] for record in again.records}) == 1
