"""Odd records: whoever reads them passes them over or says what is wrong, in one line."""

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import DataError, RobustDiffusionError
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.records import read_records
from robust_diffusion.records.records import DEEPEST, check_records, record_lines
from robust_diffusion.results.comparison import compare
from robust_diffusion.results.table import rank, summarize
from robust_diffusion.results.worst_case import show_worst_cases
from tests.paper.records import Record, failed, finished
from tests.paper.tables import build_table

pytestmark = pytest.mark.faults

ABSENT = object()
ODD = [None, 3, "x", [[1]], {"a": {"b": [1]}}, ["a"], ABSENT]


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


READERS: dict[str, Callable[[list[Record]], object]] = {
    "summarize": summarize,
    "rank": rank,
    "worst cases": show_worst_cases,
    "compare": lambda records: compare(records, "table-3"),
    "table": lambda records: build_table(load_layout(3), records),
}


@pytest.mark.slow
@pytest.mark.parametrize("base", [finished(seed=1, split="s"), failed(seed=1)], ids=["done", "not"])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_an_odd_record_is_read_passed_over_or_refused(
    tmp_path: Path, base: Record, reader: Callable[[list[Record]], object]
) -> None:
    path, read = tmp_path / "records.jsonl", 0
    for place in places(base):
        for value in ODD:
            odd = changed(base, place, value)
            path.write_text(f"{json.dumps(finished(seed=2, split='s'))}\n{json.dumps(odd)}\n")
            with suppress(RobustDiffusionError):
                reader(check_records({path: read_records(path)}))
                read += 1
    assert 0 < read < len(ODD) * len(list(places(base)))


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b'{"cell": "a\xe9"}',
        b'{"cell": 3}',
        b'{"cell": {"a": 1}}',
        b'{"directory": null}',
        b'{"overrides": [1]}',
        b'{"config": {"attacks": [1]}}',
        b'{"a": ' + b"[" * 10**5,
        b'{"a": ' + b"[" * DEEPEST + b"]" * DEEPEST + b"}",
        b'{"a": ' + b"9" * 10**4 + b"}",
        b"\x00" * 100,
    ],
    ids=range(11),
)
def test_a_line_that_is_no_record_is_told_from_one(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"seed": 0}\r\n' + line + b'\n{"seed": "\xe2\x80\xa8"}\n')
    found = [(number, record) for number, _, record in record_lines(path)]
    assert found == [(1, {"seed": 0}), (2, None), (3, {"seed": "\u2028"})]
    assert read_records(path) == [{"seed": 0}, {"seed": "\u2028"}]


def test_what_unpacks_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robust_diffusion.records.records.LARGEST", 1000)
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))
    assert path.stat().st_size < 1000
    with pytest.raises(DataError, match=r"records\.jsonl\.gz: unpacks to more"):
        read_records(path)
