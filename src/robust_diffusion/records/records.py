"""Files of records: a folder with one JSON file per run and per sweep, or a published archive."""

import gzip
import hashlib
import json
import logging
import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from robust_diffusion.checks import validated
from robust_diffusion.config import DEFAULT_RECORDS, PUBLISHED_RECORDS
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.identity import RENAMED, renamed
from robust_diffusion.records.record import Config, Record, Request
from robust_diffusion.records.schema import Schema, first_problem
from robust_diffusion.system.files import check_folder, locked, read_limited, write_whole

log = logging.getLogger(__name__)

_Key = TypeVar("_Key", bound=Hashable)

LARGEST_FILE = 1_000_000_000
"""Largest size of a file of records, in bytes after decompression."""

SCHEMA = 3
"""Version of the layout of the files."""

SWEEPS = "sweeps"
"""Folder of the sweeps in a folder of records."""

LATER = "written by a later version; upgrade robust-diffusion to read it"


class Asked(Schema):
    """Run that a sweep asked for."""

    job: int  # its place in the sweep
    overrides: dict[str, Any]
    run: str | None = None  # its id, known when it starts
    experiment: str | None = None  # unless the sweep's
    scale: str | None = None  # unless the sweep's
    error: str | None = None


class Sweep(Schema, extra="allow"):
    """The runs that one command asked for, computed by it or by an earlier one."""

    sweep: str  # its name
    experiment: str
    scale: str
    time: str
    runs: list[Asked]


def save_record(record: Record, folder: str | Path) -> Path:
    """Write a record to `<folder>/<run>.json`, completely or not at all, and return the path.

    A failed run does not replace a finished one.

    Raises:
        ConfigError: The file cannot be written.
        ValueError: The record contains NaN or infinity.
    """
    path = Path(folder, f"{record.run}.json")
    earlier = None if record.error is None else read_record(folder, record.run)
    if earlier and earlier.error is None:
        return path
    return write_whole(path, _line(record), option="paths.records")


def save_sweep(sweep: Sweep, folder: str | Path) -> Path:
    """Write `<folder>/sweeps/<sweep>.json`, completely or not at all, and return the path.

    Raises:
        ConfigError: The file cannot be written.
    """
    return write_whole(_path_of(sweep.sweep, folder), _line(sweep), option="paths.records")


def save_request(folder: str | Path, run: str, request: Request) -> None:
    """Note in the file of a sweep that it asks for a run.

    Runs of a sweep that start at the same time wait for each other.

    Raises:
        ConfigError: The file cannot be written.
    """
    path = _path_of(request.sweep, folder)
    check_folder(path.parent, option="paths.records")
    with locked(path.with_name(f".{path.name}.lock")):
        about = {key: getattr(request, key) for key in ("sweep", "experiment", "scale", "time")}
        sweep = read_sweep(request.sweep, folder) or Sweep(**about, runs=[])
        runs = {one.job: one for one in sweep.runs}
        overrides = request.overrides
        if (planned := runs.get(request.job)) and planned.run in (None, run):
            overrides = planned.overrides  # a run resolves what its overrides refer to
        own = {key: about[key] for key in ("experiment", "scale")}
        own = {key: value for key, value in own.items() if value != getattr(sweep, key)}
        own |= {"error": request.error} if request.error else {}
        runs[request.job] = Asked(job=request.job, overrides={**overrides}, run=run, **own)
        save_sweep(sweep.model_copy(update={"runs": [runs[job] for job in sorted(runs)]}), folder)


def read_sweep(sweep: str, folder: str | Path) -> Sweep | None:
    """Read the file of a sweep; `None` if there is none, or if it is damaged."""
    with suppress(OSError, ValueError):
        return Sweep.model_validate(from_json(_path_of(sweep, folder).read_bytes()))
    return None


def _path_of(sweep: str, folder: str | Path) -> Path:
    return Path(folder, SWEEPS, f"{sweep}.json")


def archive(records: Iterable[Record]) -> bytes:
    """Return the content of a `.jsonl.gz` of records, with one sweep per experiment and scale.

    Settings that several seeds share are written once, before them. The same records give the same
    bytes.
    """
    lines = dict[bytes, None]()
    for record in (records := list(records)):
        config = record.config.model_dump(exclude_unset=True)
        name = hashlib.sha256(_json(config)).hexdigest()[:16]
        lines[_json({"configuration": name, "config": config})] = None
        lines[_line(record, config=name)] = None
    lines |= dict.fromkeys(map(_line, _sweeps_of(records)))
    return gzip.compress(b"".join(lines), mtime=0)


def _sweeps_of(records: Iterable[Record]) -> Iterator[Sweep]:
    """Yield one sweep per experiment and scale, its runs in the order of their last request."""
    sweeps: dict[tuple[str, str], dict[str, Request]] = {}
    for request, record in _by_time(records):
        runs = sweeps.setdefault((request.experiment, request.scale), {})
        runs.pop(record.run, None)
        runs[record.run] = request
    for (experiment, scale), runs in sweeps.items():
        asked = [
            Asked(job=job, overrides={**request.overrides}, run=run)
            for job, (run, request) in enumerate(runs.items())
        ]
        name = experiment if scale == "full" else f"{experiment}-{scale}"
        time = max(request.time for request in runs.values())
        yield Sweep(sweep=name, experiment=experiment, scale=scale, time=time, runs=asked)


def _line(item: Schema, **changes: Any) -> bytes:
    return _json(item.model_dump(exclude_unset=True) | {"schema": SCHEMA} | changes)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, sort_keys=True).encode() + b"\n"


@validated("")
def read_records(*places: str | Path, missing_ok: bool = False) -> list[Record]:
    """Read the records of folders that runs have written, and of published archives.

    A run counts once: a finished record replaces a failed one, and a later place an earlier one. A
    damaged file is skipped with a warning.

    Args:
        places: Folders, or files that end with `.jsonl.gz`.
        missing_ok: Skip places that do not exist.

    Raises:
        DataError: A place does not exist, or is no archive.

    Examples:
        >>> from robust_diffusion import read_records
        >>> from robust_diffusion.config import PUBLISHED_RECORDS
        >>> records = read_records(PUBLISHED_RECORDS)
        >>> records[0].accuracy["clean"] > 0.5
        True
    """
    records, sweeps = list[Record](), list[Sweep]()
    for place in map(Path, places):
        if place.exists():
            if not (items := list(_items(place))):
                _warn(f"{place}: holds no record; a run writes {DEFAULT_RECORDS}")
            here = [item for item in items if isinstance(item, Record)]
            # An archive has an order, and the files of a folder have times.
            records += sorted(here, key=lambda r: (r.time, r.job)) if place.is_dir() else here
            sweeps += (item for item in items if isinstance(item, Sweep))
        elif not missing_ok:
            published = f"published are {PUBLISHED_RECORDS}"
            raise DataError(f"{place}: not found; a run writes {DEFAULT_RECORDS}; {published}")
    return list(_requested(merged(records), sweeps))


def read_record(folder: str | Path, run: str, *, with_sweeps: bool = False) -> Record | None:
    """Read the record of a run; `None` if there is none, or if it is damaged.

    Its requests are those of all sweeps, whose files are long, or the first one.
    """
    names = [f"{run}.json", *[f"{SWEEPS}/*.json"] * with_sweeps]
    items = list(_items(Path(folder), names)) if Path(folder).is_dir() else []
    records = (item for item in items if isinstance(item, Record))
    sweeps = [item for item in items if isinstance(item, Sweep)]
    return next(_requested(records, sweeps), None)


def _requested(records: Iterable[Record], sweeps: Iterable[Sweep]) -> Iterator[Record]:
    """Yield the records after adding the requests of sweeps, which may include their first one."""
    by_run: dict[str, list[Request]] = {}
    for sweep in sweeps:
        for one in sweep.runs:
            request = Request(
                experiment=one.experiment or sweep.experiment,
                scale=one.scale or sweep.scale,
                overrides=one.overrides,
                time=sweep.time,
                sweep=sweep.sweep,
                job=one.job,
                error=one.error,
            )
            by_run.setdefault(one.run or "", []).append(request)
    for record in records:
        by_sweeps = by_run.get(record.run, [])
        known = {(request.experiment, request.scale) for request in by_sweeps}
        alone = (one for one in record.requests if (one.experiment, one.scale) not in known)
        record.set_requests([*by_sweeps, *alone])
        yield record


def _items(
    place: Path, names: Sequence[str] = ("*.json", f"{SWEEPS}/*.json")
) -> Iterator[Record | Sweep]:
    """Yield the records and sweeps of a place; warn of damaged files, and of unknown keys."""
    configs, unknown, damaged = dict[str, Config](), set[str](), list[str]()
    for source, content in _contents(place, names):
        try:
            item = _parsed(content or read_limited(Path(source), LARGEST_FILE), configs)
            if not content and isinstance(item, Record):
                _check_name(item, Path(source).stem)
        except (OSError, ValueError) as error:
            damaged.append(f"{source}: {error}; skipped")
            continue
        if item is not None:
            unknown |= (item.model_extra or {}).keys()
            yield item
    if len(damaged) > 1 and place.is_file():  # most likely of another layout
        damaged = [f"{damaged[0]}, like {len(damaged) - 1} further lines"]
    if unknown:
        damaged.append(f"{place}: unknown keys, kept: {', '.join(sorted(unknown))}; {LATER}")
    for problem in damaged:
        _warn(problem)


def _contents(place: Path, names: Sequence[str]) -> Iterator[tuple[str | Path, bytes]]:
    """Yield the paths of a folder's files, or the lines of an archive with their places."""
    if place.is_dir():
        yield from ((path, b"") for name in names for path in place.glob(name))
        return
    try:
        lines = read_limited(place, LARGEST_FILE).split(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place}: cannot be read as records ({error})") from error
    yield from ((f"{place}, line {n}", line) for n, line in enumerate(lines, 1) if line)


def _parsed(content: bytes, configs: dict[str, Config]) -> Record | Sweep | None:
    """Return the record or sweep of a JSON text; a shared configuration is added to `configs`.

    Raises:
        ValueError: It is none of these.
    """
    raw = from_json(content, allow_inf_nan=False)  # more than twice as fast as json
    if not isinstance(raw, dict):
        raise ValueError("expected an object")  # noqa: TRY004 - like all other damage
    if any(name.encode() in content for name in RENAMED):
        raw = _renamed(raw)
    later = raw.pop("schema", SCHEMA) != SCHEMA
    try:
        if "configuration" in raw:
            configs[raw["configuration"]] = Config.model_validate(raw["config"])
            return None
        if "sweep" in raw:
            return Sweep.model_validate(raw)
        config = raw.get("config", {})
        if isinstance(config, dict):
            name = repr(config)
            if name not in configs:  # seeds share what is computed from their configuration
                configs[name] = Config.model_validate(config)
        else:
            name = config
        return Record.model_validate(raw | {"config": configs[name]})
    except (KeyError, ValidationError) as error:
        reason = f"{error}: missing" if isinstance(error, KeyError) else first_problem(error)
        raise ValueError(LATER if later else reason) from error


def _renamed(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a record, a configuration or a sweep with today's names of options."""
    changed = {key: renamed(raw[key]) for key in ("config",) if key in raw}
    if isinstance(overrides := raw.get("overrides"), dict):
        for then, now in RENAMED.items():
            ending = re.compile(rf"\bflow\.{then}$")
            overrides = {ending.sub(f"flow.{now}", key): v for key, v in overrides.items()}
        changed["overrides"] = overrides
    if isinstance(runs := raw.get("runs"), list):
        changed["runs"] = [_renamed(run) if isinstance(run, dict) else run for run in runs]
    return raw | changed


def _check_name(record: Record, name: str) -> None:
    if record.error is None and not name == record.run == record.id_of_settings:
        raise ValueError(f"expected the name {record.id_of_settings}, from its settings")


@cache  # warns once per process, since a sweep reads its records many times
def _warn(problem: str) -> None:
    log.warning("%s", problem)


def merged(records: Iterable[Record]) -> list[Record]:
    """Return one record per run, with the requests of all.

    The latest finished record counts, or the latest failure if there is none.

    Raises:
        ConfigError: These are no records.
    """
    remedy = "use read_records(path)"
    if isinstance(records, str | Path | Record) or not isinstance(records, Iterable):
        raise ConfigError(f"records: expected a list, got {records!r:.50}; {remedy}")
    latest: dict[str, Record] = {}
    for record in records:
        if not isinstance(record, Record):
            raise ConfigError(f"records: expected records, got {record!r:.50}; {remedy}")
        earlier = latest.setdefault(record.run, record)
        if earlier is not record:
            counts = record.error is None or earlier.error is not None
            requests = {repr(one): one for one in (*earlier.requests, *record.requests)}
            latest[record.run] = (record if counts else earlier).model_copy()
            latest[record.run].set_requests(requests.values())
    return list(latest.values())


def _by_time(records: Iterable[Record]) -> list[tuple[Request, Record]]:
    """Return every request, in order of time, with the record of its run."""
    requests = [(one, record) for record in merged(records) for one in record.requests]
    return sorted(requests, key=lambda item: item[0].order)


def by_experiment(
    records: Iterable[Record], *, scale: str | None = None
) -> dict[str, list[Record]]:
    """Return the runs that each experiment requested, in order of the last request.

    Their overrides and job are those of the request.

    Args:
        records: Records of any runs.
        scale: `full` or `smoke`; `None` for both.
    """
    return _grouped(records, scale, lambda request, _: request.experiment)


def by_sweep(
    records: Iterable[Record], *, scale: str | None = None
) -> dict[tuple[str, str, str], list[Record]]:
    """Return the runs by experiment, sweep and dataset, like `by_experiment`."""
    return _grouped(records, scale, lambda one, record: (one.experiment, one.sweep, record.dataset))


def _grouped(
    records: Iterable[Record], scale: str | None, key: Callable[[Request, Record], _Key]
) -> dict[_Key, list[Record]]:
    asked: dict[_Key, dict[str, Record]] = {}
    for request, record in _by_time(records):
        if scale in (None, request.scale):
            runs = asked.setdefault(key(request, record), {})
            runs.pop(record.run, None)
            runs[record.run] = _as_requested(record, request)
    return {name: list(runs.values()) for name, runs in asked.items()}


def read_requested(folder: str | Path, sweep: str) -> list[Record]:
    """Read the runs that a sweep asked for, in its order, with its overrides and failures.

    A failure counts even if another attempt has finished, whose record is kept. No other run of the
    folder is read.
    """
    own = read_sweep(sweep, folder)
    names = dict.fromkeys(f"{one.run}.json" for one in own.runs if one.run) if own else {}
    items = _items(Path(folder), [*names]) if own else ()
    records = _requested((item for item in items if isinstance(item, Record)), [own] if own else [])
    asked = (item for item in _by_time(records) if item[0].sweep == sweep)
    return [
        _as_requested(record, request).model_copy(update={"error": request.error or record.error})
        for request, record in asked
    ]


def _as_requested(record: Record, request: Request) -> Record:
    return record.model_copy(update={"overrides": request.overrides, "job": request.job})
