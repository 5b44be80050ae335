import copy
import gzip
import itertools
import json
import logging
import math
import multiprocessing
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.attacks import Budget
from robust_diffusion.commands.records import run_records_command
from robust_diffusion.errors import ConfigError, DataError, RobustDiffusionError
from robust_diffusion.records import append_record, read_records
from robust_diffusion.records.records import (
    _checked,
    by_experiment,
    check_records,
    check_writable,
    encoded,
    model_name,
    record_lines,
)
from robust_diffusion.records.schema import BUDGET_KEYS
from robust_diffusion.results.comparison import compare
from robust_diffusion.results.table import rank, summarize
from robust_diffusion.results.worst_case import show_worst_cases
from tests.paper.records import Record, failed, finished
from tests.paper.tables import table_of


def test_what_was_appended_is_read_in_order_and_nothing_else_is_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.jsonl"
    records = [{"seed": seed, "accuracy": {"clean": 0.5}} for seed in range(3)]
    for record in records:
        append_record(path, record)
    check_writable(path)
    for value in (math.nan, -math.inf):
        with pytest.raises(ValueError, match="JSON"):
            append_record(path, {"seed": 1, "accuracy": {"clean": value}})
    assert read_records(path) == records
    assert len(path.read_text().splitlines()) == 3
    path.write_text(begun := '{"se')
    append_record(path, {"seed": 2})  # closes off the line of a killed process
    assert path.read_text().splitlines()[0] == begun
    assert read_records(path) == [{"seed": 2}]


def test_seeds_share_one_configuration_unless_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for seed in range(3):
        append_record(path, {"seed": seed, "config": {"seed": seed, "training": {}}})
    assert path.read_bytes().count(b'"training"') == 1
    assert read_records(path) == [
        {"seed": n, "config": {"seed": n, "training": {}}} for n in range(3)
    ]
    path.write_bytes(path.read_bytes().replace(b"training", b"trailing", 1))
    assert read_records(path) == []
    append_record(path, {"seed": 3, "config": {"seed": 3, "training": {}}})
    assert [record["seed"] for record in read_records(path)] == [0, 1, 2, 3]


BOM = b"\xef\xbb\xbf"


@pytest.mark.faults
@pytest.mark.parametrize(
    "joined",
    [
        lambda a, b: BOM + a + b,
        lambda a, b: a + BOM + b,
        lambda a, b: a[:-1] + b,
        lambda a, b: a[:-1] + BOM + b,
        lambda a, b: a + b'{"se' + b,
        lambda a, b: BOM + a.replace(b"\n", b"\r\n") + b,
    ],
    ids=["bom", "second bom", "no newline", "no newline, bom", "killed", "crlf"],
)
def test_joined_files_keep_their_runs_and_every_later_one(
    tmp_path: Path, joined: Callable[[bytes, bytes], bytes]
) -> None:
    path = tmp_path / "records.jsonl"
    parts = [{"seed": n, "config": {"seed": n, "rate": rate}} for n, rate in enumerate("abba")]
    path.write_bytes(joined(b"".join(encoded(parts[:1])), b"".join(encoded(parts[1:2]))))
    for record in parts[2:]:
        append_record(path, record)
    assert read_records(path) == parts
    run_records_command(["repair", "--records", str(path)])
    assert read_records(path) == parts
    assert [record["seed"] for record in read_records(path, containing='"seed": 1')] == [1]


@pytest.mark.faults
@pytest.mark.parametrize("changes", [(b'"a"', b'"b"'), (b'"config":', b'"x":')])
def test_a_forged_configuration_is_rejected_and_written_again(
    tmp_path: Path, changes: tuple[bytes, bytes]
) -> None:
    path = tmp_path / "records.jsonl"
    record = {"run": "r", "seed": 0, "config": {"seed": 0, "rate": "a"}}
    configuration, line = b"".join(encoded([record])).splitlines()
    forged = _checked(configuration.rpartition(b', "checksum"')[0].replace(*changes))
    path.write_bytes(forged + line + b"\n")
    assert read_records(path) == []
    run_records_command(["repair", "--records", str(path)])
    append_record(path, record)
    path.write_bytes(path.read_bytes() + forged)
    append_record(path, record)
    assert read_records(path) == [record] * 3
    assert path.read_bytes().count(configuration) == 1


@pytest.mark.faults
def test_no_flipped_bit_is_read_as_another_record(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for seed in (0, 1):
        append_record(
            path,
            {"run": "ab", "seed": seed, "config": {"seed": seed, "t": 0.5}, "val_accuracy": 0.7},
        )
    content, records = path.read_bytes(), read_records(path)
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = [line.record for line in record_lines(path) if line.record is not None]
        assert all(record in records for record in found)
        assert len(found) < 2 or bytes(flipped[-1:]) != b"\n"


def _append_many(path: Path, writer: int) -> None:
    for number in range(25):
        append_record(path, {"writer": writer, "number": number, "padding": "x" * 5000})


def test_processes_that_append_at_once_leave_whole_lines(tmp_path: Path) -> None:
    path, context = tmp_path / "records.jsonl", multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, w)) for w in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    found = sorted((record["writer"], record["number"]) for record in read_records(path))
    assert found == [(writer, number) for writer in range(4) for number in range(25)]


ABSENT = object()
ODD = [None, 3, [[1]], {"a": {"b": [1]}}, ABSENT]


def places(node: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, child in node.items() if isinstance(node, dict) else ():
        yield (*above, key)
        if len(above) < 2:
            yield from places(child, (*above, key))


def changed(record: Record, place: tuple[str, ...], value: object) -> Record:
    record = copy.deepcopy(record)
    node = record
    for key in place[:-1]:
        node = node[key]
    if value is ABSENT:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return record


READERS: list[Callable[[list[Record]], object]] = [
    summarize,
    rank,
    show_worst_cases,
    lambda records: compare(by_experiment(records).get("table-3", [])),
    lambda records: table_of(3, records),
]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("base", [finished(seed=1, split="s"), failed(seed=1)], ids=["done", "not"])
def test_an_odd_record_is_read_passed_over_or_refused(tmp_path: Path, base: Record) -> None:
    path, readers = tmp_path / "records.jsonl", itertools.cycle(READERS)
    read = 0
    odd = [changed(base, place, value) for place in places(base) for value in ODD]
    for record, reader in zip(odd, readers, strict=False):
        path.write_bytes(b"".join(encoded([finished(seed=2, split="s"), record])))
        with suppress(RobustDiffusionError):
            reader(check_records({path: read_records(path)}))
            read += 1
    assert 0 < read < len(odd)


def line(record: Record) -> bytes:
    """Return the one line of a record without a configuration."""
    return b"".join(encoded([record])).rstrip(b"\n")


@pytest.mark.faults
@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xfe",
        line({"run": 3}),
        line({"configuration": "missing"}),
        line({"a": 1}).replace(b"1", b"2", 1),
        line({"a": 1}).replace(b'"schema": 2', b'"schema": 3'),
        b'{"a": ' + b"[" * 10**5,
        b'{"run": "a"}',
    ],
    ids=range(7),
)
def test_a_damaged_line_is_skipped(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line({"seed": 0}) + b"\r\n" + damaged + b"\n" + line({"seed": "\u2028"}))
    found = [(of.number, of.record) for of in record_lines(path)]
    assert found == [(1, {"seed": 0}), (2, None), (3, {"seed": "\u2028"})]
    assert read_records(path) == [{"seed": 0}, {"seed": "\u2028"}]


@pytest.mark.faults
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damaged_lines_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    path = tmp_path / f"records.jsonl{suffix}"
    assert read_records(path, missing_ok=True) == []
    with pytest.raises(DataError, match=r"not found.*outputs/records\.jsonl"):
        read_records(path)
    content = b'[1]\n\n"text"\n' + line({"seed": 0}) + b'\n{"se'
    path.write_bytes(gzip.compress(content) if suffix else content)
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == read_records(path) == [{"seed": 0}]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "content",
    [b"text", gzip.compress(b'{"seed": 0}\n', mtime=0)[:-9], gzip.compress(b" " * 100_000)],
    ids=["text", "cut short", "beyond the limit"],
)
def test_what_cannot_be_decompressed_is_one_clear_error(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robust_diffusion.records.records.LARGEST_FILE", 1000)
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"records\.jsonl\.gz: "):
        read_records(path)


@pytest.mark.faults
@pytest.mark.parametrize("written", [0, 7])
def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, written: int) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, {"seed": 0})
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    on_limit = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + written, limit[1]))
    try:
        with pytest.raises(ConfigError, match=r"paths\.records="):
            append_record(path, {"seed": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, on_limit)
    assert path.read_bytes() == before
    append_record(path, {"seed": 2})
    assert read_records(path) == [{"seed": 0}, {"seed": 2}]


GOOD = b"".join(encoded(finished(seed=seed) for seed in (0, 1))).splitlines()
BAD = [b'{"run": "a\xff"}', b'{"seed": 1, "accur']


@pytest.mark.faults
def test_lines_that_cannot_be_read_move_to_a_file_of_their_own_and_a_kill_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, beside = tmp_path / "records.jsonl", tmp_path / "records.jsonl.unreadable"
    repair = ["repair", "--records", str(path)]
    path.write_bytes(b"\n".join([GOOD[0], BAD[0], b"", *GOOD[1:], BAD[1]]))
    content, before = path.read_bytes(), read_records(path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("robust_diffusion.commands.records.written_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            run_records_command(repair)
    assert path.read_bytes() == content
    beside.unlink(missing_ok=True)
    run_records_command(repair)
    assert path.read_bytes() == b"".join(line + b"\n" for line in GOOD)
    assert beside.read_bytes() == b"".join(line + b"\n" for line in BAD)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == before
    assert caplog.text == ""
    # A record that no table can read moves, too, behind the others.
    path.write_bytes(b"".join(encoded([finished(seed=0), finished(seed=1, clean=25.0)])))
    run_records_command(repair)
    assert [record["seed"] for record in read_records(path)] == [0]
    assert beside.read_bytes().startswith(b"".join(line + b"\n" for line in BAD))


@pytest.mark.faults
@pytest.mark.parametrize("content", [b"\x00\x80PK\n" * 9, b"text", b'{"a": 1}\n', *BAD])
def test_a_file_without_any_record_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "weights.pt").write_bytes(content)
    with pytest.raises(DataError, match=r"weights\.pt: no line is a record"):
        run_records_command(["repair", "--records", str(path)])
    assert path.read_bytes() == content
    assert not Path(f"{path}.unreadable").exists()


def test_a_limit_of_a_later_version_is_not_left_out_of_the_budget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, later = tmp_path / "records.jsonl", finished(seed=1)
    later["budget"]["declared"]["max_hops"] = 3
    path.write_bytes(b"".join(encoded([finished(), later])))
    assert [record["seed"] for record in read_records(path)] == [0]
    assert "written by a later version" in caplog.text
    assert {field.name for field in fields(Budget)} == BUDGET_KEYS


@pytest.mark.faults
@pytest.mark.parametrize("schema", [2, 2.1, 3, "2026", None])
@pytest.mark.parametrize("changed", [{"flags": [{"code": "late"}]}, {"accuracy": [0.5]}, {}])
def test_an_intact_record_of_another_layout_is_not_called_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, schema: object, changed: dict[str, Any]
) -> None:
    path, other = tmp_path / "records.jsonl", json.dumps({"a": 1, **changed, "schema": schema})
    content = GOOD[0] + b"\n" + GOOD[1] + b"\n" + _checked(other.encode()[:-1])
    path.write_bytes(content)
    known = not changed and schema == 2
    assert len(read_records(path)) == 1 + known
    assert ("written by a later version" in caplog.text) is not known
    run_records_command(["repair", "--records", str(path)])
    assert path.read_bytes() == content


@pytest.mark.faults
def test_records_of_a_later_schema_or_without_a_configuration_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    configuration, record = b"".join(encoded([finished(seed=0)])).splitlines()
    later = [_checked(b'{"run": 3, "schema": 3').rstrip(), b'{"new": [], "schema": 4, "x": "y"}']
    path.write_bytes(b"\n".join([BAD[0], record, *later, GOOD[-1], b""]))
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == []
    assert "2 lines (line 3, 4) written by a later version; skipped; upgrade" in caplog.text
    assert "2 lines (line 2, 5) without a configuration; skipped" in caplog.text
    run_records_command(["repair", "--records", str(path)])
    assert path.read_bytes().splitlines() == [record, *later, GOOD[-1]]
    path.write_bytes(path.read_bytes() + configuration + b"\n")
    assert [record["seed"] for record in read_records(path)] == [0, 1]


@pytest.mark.faults
@pytest.mark.parametrize(("name", "error"), [("no.jsonl", DataError), ("a.gz", ConfigError)])
def test_what_is_no_file_or_compressed_is_refused(name: str, error: type[Exception]) -> None:
    Path("a.gz").write_bytes(b"")
    with pytest.raises(error, match=name):
        run_records_command(["repair", "--records", name])


@pytest.mark.parametrize(
    ("adversary", "name"),
    [
        ({}, "gcn"),
        ({"_target_": "robust_diffusion.attacks.InjectionAdversary"}, "gcn, adversary"),
        ({"_target_": "robust_diffusion.attacks.FlipAdversary"}, "gcn, flip adversary"),
        ({"_target_": "mine.Noise"}, "gcn, noise adversary"),
    ],
)
def test_a_model_is_named_by_what_it_was_trained_against(
    adversary: dict[str, str], name: str
) -> None:
    record = {"model": "gcn", "config": {"training": {"adversary": adversary}}}
    assert model_name(record) == name
