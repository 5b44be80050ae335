import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.reading import DEFAULT_RECORDS, add_records_option, read_chosen
from robust_diffusion.errors import DataError
from tests.paper.records import failed, finished, reference

NO_SHARES = (5.0, -3, True, "high", None, math.nan, 10**400)


def write(path: str, *seeds: int) -> str:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("".join(json.dumps(finished(seed=seed)) + "\n" for seed in seeds))
    return path


def chosen(*arguments: str) -> list[str] | None:
    parser = argparse.ArgumentParser()
    add_records_option(parser)
    named: list[str] | None = parser.parse_args(arguments).records
    return named


def test_several_files_are_read_in_their_order() -> None:
    files = [write("b.jsonl", 1, 2), write("a.jsonl", 3)]
    named = chosen("--records", files[0], "--records", files[1])
    assert [record["seed"] for record in read_chosen(named)] == [1, 2, 3]


def test_without_the_option_the_default_file_is_read_if_it_is_there() -> None:
    assert read_chosen(chosen()) == []
    with pytest.raises(DataError, match=f"--records {DEFAULT_RECORDS}: not found"):
        read_chosen(chosen(), required=True)
    write(DEFAULT_RECORDS, 7)
    assert [record["seed"] for record in read_chosen(chosen(), required=True)] == [7]


def test_a_named_file_has_to_be_there() -> None:
    with pytest.raises(DataError, match=r"--records no\.jsonl: not found; name a file"):
        read_chosen(chosen("--records", "no.jsonl"))


@pytest.mark.parametrize(
    "key",
    ["accuracy", "seed", "experiment", "dataset", "fidelity", "model", "budget", "val_accuracy"],
)
def test_what_a_record_lacks_is_named(key: str) -> None:
    record = finished(cell="c0ffee")
    del record[key]
    Path("half.jsonl").write_text(json.dumps(record))
    with pytest.raises(DataError, match=f"half.jsonl: the record of cell c0ffee: {key}: "):
        read_chosen(["half.jsonl"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "0"),
        ("seed", True),
        ("dataset", 3),
        *(("accuracy", {"clean": value}) for value in NO_SHARES),
        *(("val_accuracy", value) for value in NO_SHARES),
        *(("attacked", {"gcn": {"pgd": value}}) for value in NO_SHARES),
        ("budget", {}),
        ("budget", {"declared": {}, "spent": {"speit": {"nodes": 3}}}),
    ],
)
def test_what_no_cell_leaves_is_named(key: str, value: Any) -> None:
    Path("odd.jsonl").write_text(json.dumps(finished(cell="c0ffee") | {key: value}))
    with pytest.raises(DataError, match=rf"odd.jsonl: the record of cell c0ffee: {key}\b"):
        read_chosen(["odd.jsonl"])


def test_a_cell_that_was_run_again_is_whole_again() -> None:
    half = {key: value for key, value in finished(cell="a").items() if key != "budget"}
    lines = [half, finished(cell="b"), finished(cell="a", seed=3)]
    Path("mended.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(r["cell"], r["seed"]) for r in read_chosen(["mended.jsonl"])] == [("b", 0), ("a", 3)]
    Path("first.jsonl").write_text(json.dumps(half) + "\n")
    assert len(read_chosen(["first.jsonl", "mended.jsonl"])) == 2


def test_failures_and_references_need_no_accuracy() -> None:
    lines = [failed(cell="a"), reference(finished(cell="b"), "table-1")]
    Path("some.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_chosen(["some.jsonl"]) == lines


def test_a_file_that_is_no_text_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    Path("binary.jsonl").write_bytes(b"\x80\x02\xff")
    assert read_chosen(["binary.jsonl"]) == []
    (message,) = caplog.messages
    assert message.startswith("binary.jsonl: 1 line (line 1) cannot be read as records")
