"""Whether a line of a file of records is one that a cell has left."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.records import Record, is_timing

Fits = Callable[[Any], bool]


def check_record(record: Record, path: str | Path) -> Record:
    """The record, if tables can be made of it.

    Args:
        record: A line of a file; references, failures and lines without a cell pass.
        path: The file, for the message.

    Raises:
        DataError: Something that tables need is not there, or is not what a cell leaves.
    """
    if "cell" not in record or "reference" in record or "error" in record:
        return record
    needed = {**IN_ALL, **(TIMED if is_timing(record) else TESTED)}
    for key, (fits, what) in needed.items():
        if key not in record:
            problem = f"lacks {key}"
        elif not fits(record[key]):
            problem = f"has a {key} that is not {what}"
        else:
            continue
        raise DataError(
            f"{path}: the record of cell {record['cell']} {problem}; drop the line, or run the "
            "cell again with --force"
        )
    return record


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_number, value.values()))


def _is_budget(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("declared"), Mapping):
        return False
    spent = value.get("spent", {})
    return isinstance(spent, Mapping) and all(
        isinstance(models, Mapping) and all(isinstance(used, Mapping) for used in models.values())
        for models in spent.values()
    )


IN_ALL: Mapping[str, tuple[Fits, str]] = {
    "experiment": (_is_text, "a name"),
    "dataset": (_is_text, "a name"),
    "fidelity": (_is_text, "a name"),
    "model": (_is_text, "a name"),
    "seed": (_is_whole, "a whole number"),
}
TIMED: Mapping[str, tuple[Fits, str]] = {
    "timing": (lambda value: isinstance(value, Mapping), "a set of times"),
    "seconds": (_are_numbers, "numbers by name"),
}
TESTED: Mapping[str, tuple[Fits, str]] = {
    "accuracy": (_are_numbers, "numbers by test graph"),
    "val_accuracy": (_is_number, "a number"),
    "budget": (_is_budget, "what was declared, and what each attack spent"),
}
