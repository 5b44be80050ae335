from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.reading import read_chosen
from robust_diffusion.errors import DataError
from robust_diffusion.records.records import encoded
from tests.paper.records import Record, failed, finished, reference


def write(path: str, *lines: Record) -> str:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes(b"".join(encoded(lines)))
    return path


ABSENT = object()
REQUIRED = ["accuracy", "seed", "experiment", "dataset", "fidelity", "model", "budget"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, ABSENT) for key in (*REQUIRED, "val_accuracy")),
        ("seed", "0"),
        ("seed", True),
        ("dataset", 3),
        *(("accuracy", {"clean": value}) for value in (5.0, -3, "high", None, 10**400)),
        *(("val_accuracy", value) for value in (5.0, True)),
        ("attacked", {"gcn": {"pgd": None}}),
        ("budget", {}),
        ("budget", {"declared": {}, "spent": {"speit": {"nodes": 3}}}),
    ],
)
def test_what_a_record_lacks_or_no_cell_leaves_is_named(key: str, value: Any) -> None:
    record = finished(run="c0ffee") | {key: value}
    if value is ABSENT:
        del record[key]
    write("odd.jsonl", record)
    with pytest.raises(DataError, match=rf"odd.jsonl: line \d, run c0ffee: {key}\b"):
        read_chosen(["odd.jsonl"])


def test_failures_references_and_cells_that_were_run_again_may_lack_what_they_lack() -> None:
    lines = [failed(run="a"), reference(finished(run="b"), "table-1")]
    assert read_chosen([write("some.jsonl", *lines)]) == lines
    half = {key: value for key, value in finished(run="a").items() if key != "budget"}
    again = [half, finished(run="b"), finished(run="a", seed=3)]
    found = read_chosen([write("mended.jsonl", *again)])
    assert [(r["run"], r["seed"]) for r in found] == [("b", 0), ("a", 3)]
    assert len(read_chosen([write("first.jsonl", half), "mended.jsonl"])) == 2
    Path("binary.jsonl").write_bytes(b"\x80\x02\xff")
    assert read_chosen(["binary.jsonl"]) == []
