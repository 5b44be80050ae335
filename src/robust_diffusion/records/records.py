"""Records: one JSON line per cell, the ground truth of every table."""

import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Any

from filelock import FileLock

from robust_diffusion.config import PUBLISHED
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.identity import RecordedConfig
from robust_diffusion.records.schema import Failed, Line, Tested, Timed, misfit
from robust_diffusion.system.files import read_limited

log = logging.getLogger(__name__)

Record = dict[str, Any]

LARGEST = 1_000_000_000
"""Bytes of a file of records, unpacked, at most."""

DEEPEST = 100
"""Most levels of a record's nesting; what reads records follows it by recursion."""

MOST_NAMED = 3
"""Number of unreadable lines that a message names."""


def append_record(path: str | Path, record: Mapping[str, Any]) -> None:
    """Append one record to a JSON-lines file, whole or not at all.

    Processes that append at the same time wait for each other, the line reaches the disk before
    the call returns, and the rest of a line that a killed process left is closed off first.

    Raises:
        ValueError: The record holds NaN or infinity.
        ConfigError: The file cannot be written.
    """
    path = Path(path)
    line = json.dumps(record, allow_nan=False, sort_keys=True).encode() + b"\n"
    with _open(path) as file:
        if (size := file.seek(0, os.SEEK_END)) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        try:
            while line:
                line = line[file.write(line) :]
            os.fsync(file.fileno())
        except BaseException:  # a full disk, or Ctrl-C
            with suppress(OSError):
                file.truncate(size)
            raise


def check_writable(path: str | Path) -> None:
    """Refuse, by a `ConfigError`, a file that `append_record` could not write to."""
    if Path(path).suffix == ".gz":
        raise ConfigError(f"paths.records={path}: lines are added to plain text; leave out .gz")
    with _open(Path(path)):
        pass


@contextmanager
def _open(path: Path) -> Iterator[FileIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what a buffer still held would be written when the file is closed.
        with locked_records(path), path.open("a+b", buffering=0) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"paths.records={path}: cannot be written ({reason})") from error


def locked_records(path: Path) -> FileLock:
    """The lock that whoever changes a file of records has to hold."""
    return FileLock(f"{path}.lock")


def latest_by_cell(records: Iterable[Record]) -> dict[str, Record]:
    """The latest finished record of each cell, or its latest failure if it never finished.

    Examples:
        >>> from robust_diffusion import latest_by_cell
        >>> records = [{"cell": "a", "epochs": 3}, {"cell": "a", "epochs": 5}]
        >>> latest_by_cell(records)["a"]["epochs"]
        5
    """
    latest: dict[str, Record] = {}
    for record in records:
        cell = record.get("cell")
        if cell is None or "reference" in record:
            continue
        if "error" not in record or "error" in latest.get(cell, record):
            latest[cell] = record
    return latest


def records_of(path: str | Path, cell: str) -> list[Record]:
    """Every line of a cell, by its id: records, failures and references."""
    # A file of records grows long; only the lines of this cell are parsed.
    lines = read_records(path, containing=f'"cell": "{cell}"', missing_ok=True)
    return [line for line in lines if line.get("cell") == cell]


def finished_record(path: str | Path, cell: str) -> Record | None:
    """The latest finished record of a cell, by its id, if there is one."""
    found = latest_by_cell(records_of(path, cell)).get(cell)
    return None if found is None or "error" in found else found


def reference_to(record: Record) -> Record:
    """The line by which an experiment asks for a cell that another run has recorded."""
    kept = ("cell", "experiment", "scale", "overrides", "directory", "job", "time")
    return {key: record[key] for key in kept if key in record} | {"reference": True}


def experiments_asking(records: Iterable[Record]) -> dict[str, list[str]]:
    """Experiments that asked for each cell, by its id, in the order in which they first did."""
    asking: dict[str, list[str]] = {}
    for record in records:
        experiment = record.get("experiment", "none")
        if "cell" in record and experiment != "none":
            known = asking.setdefault(record["cell"], [])
            if experiment not in known:
                known.append(experiment)
    return asking


def is_timing(record: Record) -> bool:
    """True of a cell that timed a step, or was to: it has a time then, and no accuracy."""
    return bool(record.get("config", {}).get("timing"))


def read_records(
    path: str | Path, containing: str = "", *, missing_ok: bool = False
) -> list[Record]:
    """Read every record of a JSON-lines file, gzipped (`.gz`) or not.

    A line that cannot be read, which a killed process, a full disk or an editor can leave, is
    passed over; how many they are is told once. With `containing`, only lines with this text are
    read; with `missing_ok`, a file that is not there has none.

    Raises:
        DataError: The file is not there, or cannot be read.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from robust_diffusion import read_records
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "records.jsonl")
        ...     _ = path.write_text('{"cell": "a", "accuracy": {"clean": 0.8}}')
        ...     read_records(path)[0]["accuracy"]
        {'clean': 0.8}
    """
    path = Path(path)
    if not path.is_file():
        if missing_ok:
            return []
        raise DataError(
            f"{path}: not found; a run writes outputs/records.jsonl; published are "
            f"{PUBLISHED / 'results' / 'records.jsonl.gz'}"
        )
    lines = list(record_lines(path, containing))
    if unreadable := tuple(number for number, _, record in lines if record is None):
        _tell(path, unreadable)
    return [record for _, _, record in lines if record is not None]


@cache  # once per process: a sweep looks into its records time and again
def _tell(path: Path, numbers: tuple[int, ...]) -> None:
    lines = "1 line" if len(numbers) == 1 else f"{len(numbers)} lines"
    log.warning(
        "%s: %s (line %s%s) cannot be read as records; passed over; `records repair` moves them "
        "to a file of their own",
        path,
        lines,
        ", ".join(map(str, numbers[:MOST_NAMED])),
        ", ..." if len(numbers) > MOST_NAMED else "",
    )


def record_lines(path: Path, containing: str = "") -> Iterator[tuple[int, bytes, Record | None]]:
    """Number, text and record of every line that is not empty; no record where it holds none.

    The file may be gzipped (`.gz`). With `containing`, other lines are left out.

    Raises:
        DataError: The file cannot be read, or is larger than `LARGEST`.
    """
    try:
        content = read_limited(path, LARGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as records ({error})") from error
    wanted = containing.encode()
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip() and wanted in line:
            yield number, line, _parsed(line)


def _parsed(line: bytes) -> Record | None:
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):  # a UnicodeDecodeError and a JSONDecodeError are the first
        return None
    # To measure the depth takes longer than to count what opens a level.
    if line.count(b"{") + line.count(b"[") > DEEPEST and _is_deeper(found, DEEPEST):
        return None
    if not isinstance(found, dict) or misfit(Line, found) is not None:
        return None
    if isinstance(found.get("config"), dict):
        found["config"] = RecordedConfig(found["config"])
    return found


def _is_deeper(node: Any, levels: int) -> bool:
    if not isinstance(node, dict | list):
        return False
    children = node.values() if isinstance(node, dict) else node
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def check_records(found: Mapping[Path, Sequence[Record]]) -> list[Record]:
    """The records of some files, in their order, if tables can be made of them.

    References and lines without a cell pass. What a later record of the same cell has
    taken the place of is left out where it is not whole.

    Raises:
        DataError: Something that tables need is not there, or is not what a cell leaves.
    """
    latest = latest_by_cell(chain.from_iterable(found.values()))
    checked = []
    for path, records in found.items():
        for record in records:
            problem = None
            if "cell" in record and "reference" not in record:
                finished = Timed if is_timing(record) else Tested
                problem = misfit(Failed if "error" in record else finished, record)
            if problem is None:
                checked.append(record)
            elif latest[record["cell"]] is record:
                raise DataError(
                    f"{path}: the record of cell {record['cell']}: {problem}; drop the line, or "
                    "run the cell again with --force"
                )
    return checked
