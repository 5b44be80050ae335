"""Records: one JSON line per run, the ground truth of every table."""

import hashlib
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from io import FileIO
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock
from pydantic_core import from_json

from robust_diffusion.checks import validated
from robust_diffusion.config import DEFAULT_RECORDS, PUBLISHED_RECORDS
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.identity import RecordedConfig
from robust_diffusion.records.schema import BUDGET_KEYS, AnyRecord, Failed, Tested, Timed, misfit
from robust_diffusion.system.files import file_lock, read_limited

log = logging.getLogger(__name__)

Record = dict[str, Any]

CLEAN = "clean"
"""Name of the graph without an attack among those of a record."""

ABSENT = object()
"""Result of `value_at` for a missing path."""

LARGEST_FILE = 1_000_000_000
"""Largest size of a file of records, in bytes after decompression."""

MOST_NAMED = 3
"""Most unreadable lines that a message lists."""

SCHEMA = 2
"""Version of the layout of lines."""

CONFIGURATION = b'{"config_of": '
"""Start of a line with a configuration, shared by runs that only differ in their seed."""

_CONFIGURATION = re.compile(rb'\{"config_of": "([0-9a-f]{16})", "config": (.*)', re.DOTALL)
"""Such a line without its checksum: the name, which is a hash of the rest, and the rest."""

_CHECKSUM = re.compile(rb', "checksum": "([0-9a-f]{8})"}\s*$')
"""End of a line: CRC-32 of all bytes before it, in hexadecimal."""

_SEAM = re.compile(
    rb'\xef\xbb\xbf|(?<=, "checksum": "[0-9a-f]{8}"\})(?=\{)|(?=' + re.escape(CONFIGURATION) + rb")"
)
"""Where lines of joined files meet without a newline, perhaps at a byte order mark."""

REPAIR = "cannot be read as records; skipped; `records repair` moves them to a separate file"
UPGRADE = "written by a later version; skipped; upgrade robust-diffusion to read them"
REPEAT = "without a configuration; skipped; a run with the same settings writes it again"


def append_record(path: str | Path, record: Mapping[str, Any]) -> None:
    """Append one record to a JSON-lines file, completely or not at all.

    Processes that append at the same time wait for each other, and the line is on disk before the
    call returns. If a killed process has left an incomplete line, it is terminated first. The
    configuration of the record becomes a separate line, unless the file already has it.

    Raises:
        ValueError: The record contains NaN or infinity.
        ConfigError: The file cannot be written.
    """
    path = Path(path)
    with _open(path) as file:
        size = file.seek(0, os.SEEK_END)
        lines = b"".join(encoded([record], known=partial(_has_configuration, file, size)))
        if size > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                lines = b"\n" + lines
        try:
            while lines:
                lines = lines[file.write(lines) :]
            os.fsync(file.fileno())
        except BaseException:  # a full disk, or Ctrl-C
            with suppress(OSError):
                file.truncate(size)
            raise


def encoded(
    records: Iterable[Mapping[str, Any]], *, known: Callable[[bytes], bool] | None = None
) -> Iterator[bytes]:
    """Yield the lines of records and their configurations, each with a checksum.

    Runs that only differ in their seed share a configuration, which precedes the first of them.

    Args:
        records: Records with their whole `config`.
        known: Function that returns whether the file has a line that starts with these bytes;
            `None` for a new file.
    """
    written: set[bytes] = set()
    for record in records:
        line = dict(record)
        if isinstance(record.get("config"), Mapping):
            config = {key: value for key, value in line.pop("config").items() if key != "seed"}
            name = hashlib.sha256(_json(config)).hexdigest()[:16]
            start = CONFIGURATION + f'"{name}"'.encode()
            if start not in written and not (known and known(start)):
                yield _checked(start + b', "config": ' + _json(config))
            written.add(start)
            line["configuration"] = name
        yield _checked(_json(line | {"schema": SCHEMA})[:-1])


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, sort_keys=True).encode()


def _checked(line: bytes) -> bytes:
    """Close a JSON object with a checksum of all preceding bytes."""
    return line + f', "checksum": "{zlib.crc32(line):08x}"}}\n'.encode()


def _has_configuration(file: FileIO, size: int, start: bytes) -> bool:
    """Return whether a line of the file has this start, and is undamaged."""
    if size == 0:
        return False
    # Not closed by `with`, since the search refers to it until it is garbage-collected.
    content = mmap(file.fileno(), size, access=ACCESS_READ)
    lines = re.finditer(b"^" + re.escape(start) + b".*", content, re.MULTILINE)
    return any(_read(line[0])[0] is not None for line in lines)


def check_writable(path: str | Path, option: str = "paths.records=") -> None:
    """Raise a `ConfigError` if `append_record` could not write to the file."""
    if Path(path).suffix == ".gz":
        raise ConfigError(f"{option}{path}: lines are added to plain text; leave out .gz")
    with _open(Path(path), option):
        pass


@contextmanager
def _open(path: Path, option: str = "paths.records=") -> Iterator[FileIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, since closing the file would write the rest of a buffer after an error.
        with locked_records(path), path.open("a+b", buffering=0) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{option}{path}: cannot be written ({reason}); name a file in another folder"
        ) from error


def locked_records(path: Path) -> FileLock:
    """Return the lock that a writer of a file of records must hold."""
    return file_lock(Path(f"{path}.lock"))


def latest_by_run(records: Iterable[Record]) -> dict[str, Record]:
    """Return the latest finished record of each run, or its latest failure if it never finished.

    Examples:
        >>> from robust_diffusion.records import latest_by_run
        >>> records = [{"run": "a", "epochs": 3}, {"run": "a", "epochs": 5}]
        >>> latest_by_run(records)["a"]["epochs"]
        5

    Raises:
        ConfigError: These are no records.
    """
    latest: dict[str, Record] = {}
    if isinstance(records, str | Path | Mapping) or not isinstance(records, Iterable):
        remedy = "use read_records(path)"
        raise ConfigError(f"records: expected a list, got {records!r:.50}; {remedy}")
    for record in records:
        if not isinstance(record, Mapping):
            raise ConfigError(f"records: expected dictionaries, got {record!r:.50} among them")
        run = record.get("run")
        if run is None or "reference" in record:
            continue
        if "error" not in record or "error" in latest.get(run, record):
            latest[run] = record
    return latest


def records_of(path: str | Path, run: str) -> list[Record]:
    """Return every line of a run, by its id: records, failures and references."""
    # Files of records become long, so only the lines of this run are parsed.
    lines = read_records(path, containing=f'"run": "{run}"', missing_ok=True)
    return [line for line in lines if line.get("run") == run]


def finished_record(path: str | Path, run: str) -> Record | None:
    """Return the latest finished record of a run, by its id; `None` if there is none."""
    record = latest_by_run(records_of(path, run)).get(run)
    return None if record is None or "error" in record else record


def reference_to(record: Record) -> Record:
    """Build the line with which an experiment refers to a run that is already recorded."""
    keys = ("run", "experiment", "scale", "overrides", "directory", "job", "time")
    return {key: record[key] for key in keys if key in record} | {"reference": True}


def experiments_asking(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return the experiments that requested each run, by its id, in order of the first request."""
    asking: dict[str, dict[str, None]] = {}
    for record in records:
        experiment = record.get("experiment", "none")
        if "run" in record and experiment != "none":
            asking.setdefault(record["run"], {})[experiment] = None
    return {run: list(experiments) for run, experiments in asking.items()}


def by_experiment(
    records: Iterable[Record], *, scale: str | None = None
) -> dict[str, list[Record]]:
    """Return the runs that each experiment requested, in order of the last request.

    A run counts once, with its latest finished record, or its latest failure if there is none, from
    any experiment. Its overrides and job are those of the experiment that requested it; `first` is
    its place in the order of first requests.

    Args:
        records: Records in the order in which they were appended.
        scale: `full` or `smoke`; `None` for both.
    """
    records = list(records)
    latest, missing = latest_by_run(records), set[str]()
    asked: dict[str, dict[str, Record]] = {}
    for line in records:
        run = line.get("run")
        if run is None or scale not in (None, line.get("scale", "full")):
            continue
        if run not in latest:
            missing.add(run)
        else:
            runs = asked.setdefault(str(line.get("experiment")), {})
            first = runs.pop(run, {}).get("first", len(runs))
            place = {"overrides": line.get("overrides", {}), "job": line.get("job", 0)}
            runs[run] = latest[run] | place | {"first": first}
    for run in sorted(missing):
        log.warning("run %s: only a reference is there, its record is not; left out", run)
    return {name: list(runs.values()) for name, runs in asked.items()}


def first_asked(runs: Iterable[Record]) -> list[Record]:
    """Return runs of `by_experiment` in the order of their first request."""
    return sorted(runs, key=lambda run: run.get("first", 0))


def is_tested(record: Record) -> bool:
    """Return whether a run finished and tested a model, instead of timing one."""
    return "error" not in record and not is_timing(record)


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or `ABSENT`."""
    node: Any = record
    try:
        for key in path.split("."):
            node = node[key]
    except (KeyError, TypeError):
        return ABSENT
    return node


def has_values(record: Mapping[str, Any], wanted: Mapping[str, object]) -> bool:
    """Return whether a record has these values at their dotted paths."""
    return all(value_at(record, path) == value for path, value in wanted.items())


def is_timing(record: Record) -> bool:
    """Return whether a run times a step; it then has a time instead of an accuracy."""
    return bool(record.get("config", {}).get("timing"))


@validated("")
def read_records(
    path: str | Path, containing: str = "", *, missing_ok: bool = False
) -> list[Record]:
    """Read every record of a JSON-lines file, gzipped (`.gz`) or not.

    A line with a wrong checksum (after a killed process, a full disk or an edit) is skipped with a
    warning. Do not modify the configurations of records, since they share parts.

    Args:
        path: The file.
        containing: Only read lines that contain this text; "" for all.
        missing_ok: Return no records if the file does not exist.

    Raises:
        DataError: The file does not exist, or cannot be read.

    Examples:
        >>> from robust_diffusion import read_records
        >>> from robust_diffusion.config import PUBLISHED_RECORDS
        >>> records = read_records(PUBLISHED_RECORDS)
        >>> records[0]["accuracy"]["clean"] > 0.5
        True
    """
    path = Path(path)
    if not path.is_file():
        if missing_ok:
            return []
        raise DataError(
            f"{path}: not found; a run writes {DEFAULT_RECORDS}; published are {PUBLISHED_RECORDS}"
        )
    lines = list(record_lines(path, containing))
    for remedy in (REPAIR, UPGRADE, REPEAT):
        if numbers := tuple(line.number for line in lines if line.remedy == remedy):
            _warn(path, numbers, remedy)
    return [line.record for line in lines if line.record is not None]


@cache  # warns once per process, since a sweep reads its records many times
def _warn(path: Path, numbers: tuple[int, ...], remedy: str) -> None:
    lines = "1 line" if len(numbers) == 1 else f"{len(numbers)} lines"
    some = ", ".join(map(str, numbers[:MOST_NAMED])) + ", ..." * (len(numbers) > MOST_NAMED)
    log.warning("%s: %s (line %s) %s", path, lines, some, remedy)


class RecordLine(NamedTuple):
    """A line of a file: a record, a shared configuration, or a damaged line."""

    number: int
    content: bytes
    record: Record | None = None
    remedy: str | None = None  # problem and remedy of a line that is not read


def record_lines(path: Path, containing: str = "") -> Iterator[RecordLine]:
    """Yield each non-blank line of a file, gzipped (`.gz`) or not.

    A configuration may follow its records. Lines of joined files may lack the newline in between.
    With `containing`, records without this text are skipped.

    Raises:
        DataError: The file cannot be read, or is larger than `LARGEST_FILE`.
    """
    try:
        content = read_limited(path, LARGEST_FILE)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as records ({error})") from error
    wanted = containing.encode()
    lines = [
        (number, *read)
        for number, joined in enumerate(content.split(b"\n"), start=1)
        if joined.strip() and (wanted in joined or CONFIGURATION in joined)
        for read in _lines_within(joined)
    ]
    configs = {
        record["config_of"]: RecordedConfig(record["config"])
        for _, line, record, _ in lines
        if record is not None and line.startswith(CONFIGURATION)
    }
    for number, line, record, remedy in lines:
        if line.startswith(CONFIGURATION):
            record = None
        elif wanted not in line:
            continue
        elif record is not None and (name := record.pop("configuration", None)):
            if name in configs:
                record["config"] = configs[name].with_seed(record.get("seed"))
            else:
                record, remedy = None, REPEAT
        yield RecordLine(number, line, record, remedy)


def _lines_within(line: bytes) -> list[tuple[bytes, Record | None, str | None]]:
    """Return a line with its content and remedy, or the lines that it was joined from."""
    whole = (line, *_read(line))
    if whole[-1] == REPAIR:
        parts = [(part, *_read(part)) for part in _SEAM.split(line) if part]
        if any(part[-1] != REPAIR for part in parts):
            return parts
    return [whole]


def _read(line: bytes) -> tuple[Record | None, str | None]:
    """Parse a line; an intact one that does not fit is of a later version, which may add keys."""
    ending = _CHECKSUM.search(line)
    if ending is not None and int(ending[1], 16) != zlib.crc32(line[: ending.start()]):
        return None, REPAIR
    try:
        record = from_json(line, allow_inf_nan=False)  # more than twice as fast as json
    except ValueError:
        return None, REPAIR
    # Whatever replaces the checksum, a later version names its schema.
    if not isinstance(record, dict) or (ending is None and record.get("schema", SCHEMA) == SCHEMA):
        return None, REPAIR
    record.pop("checksum", None)
    limits = value_at(record, "budget.declared")
    if (
        record.pop("schema", SCHEMA) != SCHEMA
        or misfit(AnyRecord, record) is not None
        or (isinstance(limits, dict) and not limits.keys() <= BUDGET_KEYS)
    ):
        return None, UPGRADE
    if ending is not None and line.startswith(CONFIGURATION):
        # Another configuration of the same name would change what all its records say.
        named = _CONFIGURATION.fullmatch(line[: ending.start()])
        if named is None or hashlib.sha256(named[2]).hexdigest()[:16].encode() != named[1]:
            return None, REPAIR
    return record, None


def problem_of(record: Record) -> str | None:
    """Return the first key of a record that tables cannot read, and why; `None` if all can."""
    if "run" not in record or "reference" in record:
        return None
    finished = Timed if is_timing(record) else Tested
    return misfit(Failed if "error" in record else finished, record)


def check_records(records_by_path: Mapping[Path, Sequence[Record]]) -> list[Record]:
    """Return the records of some files, in order, after checking that tables can read them.

    References and lines without a run are not checked. An invalid record is skipped if a later
    record of the same run supersedes it.

    Raises:
        DataError: A value that tables need is missing or invalid.
    """
    latest = latest_by_run(chain.from_iterable(records_by_path.values()))
    checked = []
    for path, records in records_by_path.items():
        for record in records:
            if (problem := problem_of(record)) is None:
                checked.append(record)
            elif latest[record["run"]] is record:
                lines = (line.number for line in record_lines(path) if line.record == record)
                raise DataError(
                    f"{path}: line {next(lines, '?')}, run {record['run']}: {problem}; `records "
                    "repair` moves it to a separate file, --force repeats the run"
                )
    return checked


def model_name(record: Record) -> str:
    """Return the name of a model, or of its flow, with its adversarial training if any.

    Examples are `beltrami, adversary` for injected nodes, and `beltrami, flip adversary` for flips.
    """
    # All other models with a flow have a fixed one.
    flow = record.get("flow") if record["model"] == "graph_pde" else None
    adversary = value_at(record, "config.training.adversary")
    against = []
    if adversary is not ABSENT and adversary:
        name = str(adversary.get("_target_", "")).rpartition(".")[2].removesuffix("Adversary")
        against = [f"{name} adversary".lower().removeprefix("injection ").strip()]
    return ", ".join([str(flow or record["model"]), *against])
