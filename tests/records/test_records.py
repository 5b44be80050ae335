import errno
import gzip
import json
import logging
import math
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records import append_record, read_records
from robust_diffusion.records.records import check_writable, experiments_asking


def test_what_was_appended_is_read_in_order_and_nothing_else_is_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.jsonl"
    records = [{"seed": seed, "accuracy": {"clean": 0.5}} for seed in range(3)]
    for record in records:
        append_record(path, record)
    check_writable(path)
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="JSON"):
            append_record(path, {"seed": 1, "accuracy": {"clean": value}})
    assert read_records(path) == records
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_only_whole_records_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    path = tmp_path / f"records.jsonl{suffix}"
    assert read_records(path) == []
    content = b'[1]\n\n"text"\n{"seed": 0}\n{"se'
    path.write_bytes(gzip.compress(content) if suffix else content)
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == [{"seed": 0}]
    assert "3 lines (line 1, 3, 5) cannot be read" in caplog.text


@pytest.mark.parametrize("begun", ['{"se', '{"seed": 1}'])
def test_an_append_closes_off_an_unfinished_line(tmp_path: Path, begun: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(begun)
    append_record(path, {"seed": 2})
    assert path.read_text().splitlines() == [begun, '{"seed": 2}']


@pytest.mark.parametrize(
    "content", [b"text", gzip.compress(b'{"seed": 0}\n', mtime=0)[:-9]], ids=["text", "cut short"]
)
def test_what_cannot_be_decompressed_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"records\.jsonl\.gz: cannot be read as records"):
        read_records(path)


def _append_many(path: Path, writer: int) -> None:
    for number in range(25):
        append_record(path, {"writer": writer, "number": number, "padding": "x" * 5000})


def test_processes_that_append_at_once_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, w)) for w in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(records) == 100
    for writer_number in range(4):
        own = [r["number"] for r in records if r["writer"] == writer_number]
        assert own == list(range(25))


@pytest.mark.parametrize("write", [check_writable, lambda path: append_record(path, {"seed": 0})])
def test_a_file_that_cannot_be_written_is_the_users_error(tmp_path: Path, write: object) -> None:
    (tmp_path / "file").write_text("")
    assert callable(write)
    with pytest.raises(ConfigError, match=r"paths\.records=.*cannot be written"):
        write(tmp_path / "file" / "records.jsonl")


def test_who_asked_for_a_cell_is_in_its_lines() -> None:
    asked = [("a", "none"), ("a", "table-3"), ("b", "table-3"), ("a", "mlp"), ("a", "table-3")]
    lines = [{"cell": cell, "experiment": experiment} for cell, experiment in asked]
    assert experiments_asking([*lines, {"cell": "c"}, {"experiment": "mlp"}]) == {
        "a": ["table-3", "mlp"],
        "b": ["table-3"],
    }


@pytest.mark.faults
@pytest.mark.parametrize("written", [0, 7])
def test_a_full_disk_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, {"seed": 0})
    before = path.read_bytes()
    opened = Path.open

    class Full:
        """A file on a disk with room for so many bytes."""

        def __init__(self, file: Any) -> None:
            self.file, self.room = file, written

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, line: bytes) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            done = self.file.write(line[: self.room])
            self.room = 0
            return int(done)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda *given, **named: Full(opened(*given, **named)))
        with pytest.raises(ConfigError, match="No space left on device"):
            append_record(path, {"seed": 1})
    assert path.read_bytes() == before
    append_record(path, {"seed": 2})
    assert read_records(path) == [{"seed": 0}, {"seed": 2}]


@pytest.mark.faults
def test_lines_that_cannot_be_read_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\xff\n" * 5)
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == read_records(path) == []
    (message,) = caplog.messages
    assert "5 lines (line 1, 2, 3, ...) cannot be read as records" in message
    assert "`records repair`" in message
