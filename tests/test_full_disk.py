"""A disk without room, in earnest: a limit of the file system, and one of the process."""

import json
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.faults

Cli = Callable[..., Any]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system is mounted by root alone")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def cell(tiny_clean: list[str]) -> list[str]:
    """A cell whose weights, unlike its record, do not fit."""
    return ["-m", "flow=heat", *tiny_clean, "model.hidden_channels=64", "logger=none"]


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "filling").open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def assert_told(outcome: Any) -> None:
    assert outcome.status == 1
    assert "Traceback" not in outcome.err
    (line,) = [line for line in outcome.err.splitlines() if "failed: " in line]
    assert "paths.outputs" in line or "paths.store" in line


def test_a_full_disk_fails_a_cell_and_leaves_the_records_whole(
    cli: Cli, cell: list[str], small_disk: Path
) -> None:
    given = [*cell, f"paths.store={small_disk}/store", f"paths.records={small_disk}/records.jsonl"]
    (small_disk / "filling").write_bytes(bytes(40_000))
    assert_told(cli(*given))
    (failed,) = records(small_disk / "records.jsonl")
    assert "No space left on device" in failed["error"]
    fill(small_disk)  # no room for a record either
    assert cli(*given).status == 1
    assert records(small_disk / "records.jsonl") == [failed]
    (small_disk / "filling").unlink()
    assert cli(*given).status == 0
    assert ["accuracy" in record for record in records(small_disk / "records.jsonl")] == [
        *(False, True)
    ]


def test_a_limit_of_file_sizes_is_told_as_a_full_disk_is(cli: Cli, cell: list[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    on_limit = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, before[1]))
    try:
        outcome = cli(*cell)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, on_limit)
    assert_told(outcome)
    again = cli(*cell)
    assert again.status == 0
    assert ["accuracy" in record for record in again.records] == [False, True]
