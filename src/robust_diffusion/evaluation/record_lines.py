"""Lines of a file of records: those that hold one, and those that cannot be read as one."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robust_diffusion.errors import DataError
from robust_diffusion.files import read_limited

LARGEST = 1_000_000_000
"""Bytes of a file of records, unpacked, at most."""

DEEPEST = 100
"""Most levels of a record's nesting; what reads records follows it by recursion."""


def record_lines(
    path: Path, containing: str = ""
) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
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


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):  # a UnicodeDecodeError and a JSONDecodeError are the first
        return None
    if not isinstance(found, dict):
        return None
    # To measure the depth takes longer than to count what opens a level.
    if line.count(b"{") + line.count(b"[") > DEEPEST and _is_deeper(found, DEEPEST):
        return None
    return found if all(fits(found[key]) for key, fits in FIELDS.items() if key in found) else None


def _is_deeper(node: Any, levels: int) -> bool:
    if not isinstance(node, dict | list):
        return False
    children = node.values() if isinstance(node, dict) else node
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_scalars(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_scalar, value.values()))


def _are_mappings(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_mapping, value.values()))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _are_lines(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_are_texts, value.values()))


def _is_config(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    may_be_null = ("budget", "model", "threat", "timing", "training")
    if not all(isinstance(value.get(part), dict | None) for part in may_be_null):
        return False
    if not all(isinstance(value.get(part, {}), dict) for part in ("attacks", "data")):
        return False
    return isinstance((value.get("training") or {}).get("trainer"), dict | None)


FIELDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("cell", "directory", "error", "error_kind", "model"), _is_text),
    **dict.fromkeys(("code", "experiment", "fidelity", "flow"), _is_text_or_null),
    **dict.fromkeys(("scale", "solver", "split", "threat"), _is_text_or_null),
    **dict.fromkeys(("dataset", "difficulty", "seed"), _is_scalar),  # a failure's may be anything
    **dict.fromkeys(("accuracy", "budget", "seconds", "timing", "versions"), _is_mapping),
    **dict.fromkeys(("mean_accuracy", "overrides"), _are_scalars),
    **dict.fromkeys(("attacked", "parts"), _are_mappings),
    **dict.fromkeys(("flags", "warnings"), _are_lines),
    "surrogates": _are_texts,
    "job": _is_count,
    "config": _is_config,
}
"""Shape of what a record may have, finished or not; `record_shape` checks finished ones further."""
