"""Validation of records that others may have written."""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.records import Record, is_timing, latest_by_cell

INJECTION = ("max_injected_nodes", "max_edges_per_injected_node")
"""Declared limits that every budget has."""

Fits = Callable[[Any], bool]


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
            problem = _problem(record)
            if problem is None:
                checked.append(record)
            elif latest[record["cell"]] is record:
                raise DataError(
                    f"{path}: the record of cell {record['cell']} {problem}; drop the line, or run "
                    "the cell again with --force"
                )
    return checked


def _problem(record: Record) -> str | None:
    if "cell" not in record or "reference" in record:
        return None
    if "error" in record:
        missing = (key for key in ("dataset", "model", "seed") if key not in record)
        return next((f"lacks {key}" for key in missing), None)
    needed = {**COMMON_FIELDS, **(TIMING_FIELDS if is_timing(record) else ACCURACY_FIELDS)}
    for key, (fits, what) in {**needed, **FURTHER_FIELDS}.items():
        if key in needed and key not in record:
            return f"lacks {key}"
        if key in record and not fits(record[key]):
            return f"has a {key} that is not {what}"
    return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and -sys.float_info.max <= value <= sys.float_info.max


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_number, value.values()))


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _are_shares(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_share, value.values()))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _is_budget(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("declared"), Mapping):
        return False
    declared, spent = value["declared"], value.get("spent", {})
    if not all(_is_whole(declared.get(key)) for key in INJECTION):
        return False
    if not _is_whole(declared.get("max_injected_edges") or 0):
        return False
    if not all(_is_number(declared.get(key, 0)) for key in MODIFICATION):
        return False
    limits = declared.get("feature_limits")
    if limits is not None and not (_is_pair(limits) and all(map(_is_number, limits))):
        return False
    return isinstance(spent, Mapping) and all(
        isinstance(models, Mapping) and all(isinstance(used, Mapping) for used in models.values())
        for models in spent.values()
    )


MODIFICATION = ("node_ratio", "edge_ratio", "epsilon")

COMMON_FIELDS: Mapping[str, tuple[Fits, str]] = {
    **dict.fromkeys(
        ("experiment", "dataset", "fidelity", "model"),
        (lambda value: isinstance(value, str), "a name"),
    ),
    "seed": (_is_whole, "a whole number"),
}
TIMING_FIELDS: Mapping[str, tuple[Fits, str]] = {
    "timing": (lambda value: isinstance(value, Mapping), "a set of times"),
    "seconds": (_are_numbers, "numbers by name"),
}
PERCENT = " in 0..1; what is above 1 looks like a percentage"
"""Description of a share, in messages."""

FURTHER_FIELDS: Mapping[str, tuple[Fits, str]] = {
    "mean_accuracy": (_are_shares, f"shares{PERCENT}"),
    **dict.fromkeys(
        ("attacked", "parts"),
        (lambda value: all(map(_are_shares, value.values())), f"shares{PERCENT}"),
    ),
}
"""Fields that a record may lack."""

ACCURACY_FIELDS: Mapping[str, tuple[Fits, str]] = {
    "accuracy": (
        lambda value: _are_shares(value) and "clean" in value,
        f"shares by test graph{PERCENT}",
    ),
    "val_accuracy": (_is_share, f"a share{PERCENT}"),
    "budget": (_is_budget, "what was declared, and what each attack spent"),
}
