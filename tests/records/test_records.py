"""Records as files: one per run and per sweep in a folder, or one archive."""

import json
import logging
import math
import multiprocessing
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records import read_records, save_record
from robust_diffusion.records.record import Record, Request
from robust_diffusion.records.records import (
    Asked,
    Sweep,
    by_experiment,
    read_record,
    read_requested,
    save_request,
    save_sweep,
)
from tests.paper.records import also_asked, archived, failed, finished, saved, timed


def content(record: Record) -> dict[str, Any]:
    return record.model_dump(exclude_unset=True)


def with_its_id(record: Record) -> Record:
    return record | {"run": record.id_of_settings}


def test_what_is_saved_is_read_and_nothing_else_is_written(tmp_path: Path) -> None:
    folder, records = tmp_path / "deep" / "records", [finished(seed=0), failed(seed="x"), timed()]
    records = [with_its_id(record) for record in records]
    paths = [save_record(record, folder) for record in records]
    assert sorted(folder.iterdir()) == sorted(paths)
    by_run = {record.run: content(record) for record in read_records(folder)}
    assert by_run == {record.run: content(record) for record in records}
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            records[0] | {"accuracy": {"clean": value}}


def test_options_have_one_name_in_old_and_new_records(tmp_path: Path) -> None:
    flow = {"_target_": "robust_diffusion.flows.Beltrami", "lipschitz": False}
    own = {"_target_": "mine.Flow", "spectral_norm": 3}
    config = {"model": {"flow": flow}, "threat": {"surrogates": {"own": own}}}
    overrides = {"flow.lipschitz": "false", "model.flow.lipschitz": "1", "mine.spectral_norm": "2"}
    record = with_its_id(finished() | {"config": config, "overrides": overrides})
    asked = Asked(job=0, overrides=overrides, run=record.run)
    save_sweep(Sweep(sweep="s", experiment="e", scale="full", time="t", runs=[asked]), tmp_path)
    path = save_record(record, tmp_path)
    for file in (path, tmp_path / "sweeps" / "s.json"):
        file.write_text(file.read_text().replace("lipschitz", "spectral_norm"))
    (read,) = read_records(tmp_path)  # its name is still the id of its settings
    assert read.config.whole == config
    assert read.overrides == read.requests[0].overrides == overrides


@pytest.mark.parametrize("order", [1, -1])
def test_a_finished_record_replaces_a_failed_one_and_no_other_way(order: int) -> None:
    done = with_its_id(finished())
    for record in [failed() | {"run": done.run}, done][::order]:
        save_record(record, "records")
    assert [record.error for record in read_records("records")] == [None]


def test_an_archive_holds_what_a_folder_holds_and_its_bytes_are_the_same() -> None:
    records = [finished(seed=seed) for seed in range(3)] + [also_asked(finished(seed=3), "mine")]
    path = archived(*records)
    read = read_records(path)
    assert list(map(content, read)) == list(map(content, records))
    assert read[0].config is read[1].config, "seeds share what is computed from a configuration"
    assert {name: len(runs) for name, runs in by_experiment(read).items()} == {
        "table-3": 4,
        "mine": 1,
    }
    assert Path(archived(*read, path="again.jsonl.gz")).read_bytes() == Path(path).read_bytes()
    saved(finished(0.1, seed=0), finished(seed=9))
    both = read_records(path, "outputs/records")
    assert len(both) == 6  # the helper saves under other ids


def test_a_run_belongs_to_every_sweep_that_asked_for_it(tmp_path: Path) -> None:
    run, other = (with_its_id(finished(seed=seed, job=5)) for seed in (0, 1))
    for record in (run, other):
        save_record(record, tmp_path)
    for sweep, experiment in (("b", "table-9"), ("a", "table-3")):
        for job, record in enumerate([other, run]):
            asked = Request(experiment, "full", {"by": sweep}, f"2026 {sweep}", sweep, job)
            save_request(tmp_path, record.run, asked)
    records = read_records(tmp_path)
    assert {name: [r.run for r in runs] for name, runs in by_experiment(records).items()} == {
        "table-3": [other.run, run.run],
        "table-9": [other.run, run.run],
    }
    assert [(r.overrides, r.job) for r in read_requested(tmp_path, "b")] == [
        ({"by": "b"}, 0),
        ({"by": "b"}, 1),
    ]
    about = {"experiment": "mine", "scale": "full", "time": "2027"}
    later = Sweep(sweep="c", runs=[Asked(job=0, overrides={})], **about)
    save_sweep(later, tmp_path)  # has asked for nothing that has started
    planned = Sweep(sweep="d", runs=[Asked(job=0, overrides={"x": "${seed}"})], **about)
    save_sweep(planned, tmp_path)
    resolved = Request("mine", "full", {"x": "0"}, "2027", "d", 0)
    save_request(tmp_path, other.run, resolved)
    (asked,) = read_requested(tmp_path, "d")
    assert (asked.run, asked.overrides) == (other.run, {"x": "${seed}"})
    # Of another experiment than the sweep, and failing although an earlier attempt has finished.
    save_request(tmp_path, other.run, resolved._replace(scale="smoke", error="too late"))
    (asked,) = read_requested(tmp_path, "d")
    assert (asked.overrides, asked.error) == ({"x": "${seed}"}, "too late")
    assert by_experiment(read_records(tmp_path), scale="smoke")["mine"][0].error is None
    found = read_record(tmp_path, run.run, with_sweeps=True)
    assert found is not None
    assert found.experiments == ["table-3", "table-9"]
    assert read_record(tmp_path, "none") is None


def write_many(folder: Path, writer: int) -> None:
    for number in range(10):
        record = with_its_id(finished(seed=10 * writer + number))
        save_request(folder, record.run, Request("e", sweep="shared", job=record.seed))
        save_record(record, folder)


def test_processes_that_write_while_another_reads_lose_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(tmp_path, w)) for w in range(3)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        read_records(tmp_path)
    assert [writer.exitcode for writer in writers] == [0] * 3
    assert [r.seed for r in read_requested(tmp_path, "shared")] == list(range(30))
    assert not [text for text in caplog.messages if "holds no record" not in text]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    on_limit = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, on_limit)


@pytest.mark.faults
def test_a_full_disk_or_a_kill_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = with_its_id(finished())
    save_record(record, tmp_path)
    save_request(tmp_path, record.run, Request("e", sweep="s"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = record | {"accuracy": {"clean": 0.1}}
    with full_disk(100):
        for save in (
            lambda: save_record(again, tmp_path),
            lambda: save_request(tmp_path, record.run, Request("e", sweep="s", job=1)),
        ):
            with pytest.raises(ConfigError, match=r"^paths\.records"):
                save()
    monkeypatch.setattr(Path, "replace", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save_record(again, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.faults
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_damaged_file_is_read_as_another_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("records")
    record = with_its_id(finished(attacks=()))
    path, other = (save_record(r, folder) for r in (record, with_its_id(finished(seed=1))))
    raw = json.loads(path.read_bytes())
    place = data.draw(st.sampled_from([*raw["config"], "seed", "accuracy", "run", "budget"]))
    odd = data.draw(st.sampled_from([None, 3, [1], {"clean": 2}, "text"]))
    (raw["config"] if place in raw["config"] else raw)[place] = odd
    text = data.draw(st.sampled_from([json.dumps(raw), path.read_text()[:-9], "", "[1]", "\0"]))
    path.write_text(text)
    found = read_records(folder)
    assert [content(r) for r in found if r.seed == 1]
    assert all(r.run == r.id_of_settings for r in found)
    assert other.is_file()


@pytest.mark.faults
def test_a_damaged_file_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    saved(finished())
    Path("outputs/records/abc.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert len(read_records("outputs/records")) == len(read_records("outputs/records")) == 1
    assert len(caplog.messages) == 1
    assert "outputs/records/abc.json: " in caplog.text


@pytest.mark.faults
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"later": 1}, "unknown keys, kept: later"),
        ({"schema": 9, "accuracy": [0.5]}, "written by a later version"),
        ({"budget": {"max_hops": 3}}, "max_hops"),
        ({"accuracy": {}}, "accuracy.clean"),
    ],
)
def test_what_another_version_wrote_is_kept_or_named(
    caplog: pytest.LogCaptureFixture, changes: dict[str, Any], words: str
) -> None:
    saved(finished())
    (path,) = Path("outputs/records").glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    kept = read_records("outputs/records")
    assert [(r.model_extra or {}).get("later") for r in kept] == [1] * ("later" in changes)
    assert words in caplog.text


def test_a_place_without_records_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    Path("empty").mkdir()
    Path("former.jsonl").write_text('{"run": "a"}\n{"config_of": "b"}\n' * 9)
    assert read_records("empty", "former.jsonl") == []
    assert [text.split(":")[0] for text in caplog.messages] == [
        "empty",
        "former.jsonl, line 1",
        "former.jsonl",
    ]


@pytest.mark.parametrize("damaged", [b"text", b"\x1f\x8b\x08\x00cut"])
def test_what_is_no_archive_is_one_clear_error(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "records.jsonl.gz"
    with pytest.raises(DataError, match="not found"):
        read_records(path)
    assert read_records(path, missing_ok=True) == []
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"records\.jsonl\.gz: "):
        read_records(path)


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
    options = {"training": {"adversary": adversary}}
    assert finished(model="gcn", settings=options).model_name == name
