"""Certificates of several models in one table, read from their reports."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from robust_diffusion.certificates.report import REPORT, nothing_fell
from robust_diffusion.errors import DataError

NEEDED = ("certificate", "unit", "plain_accuracy", "clean_accuracy", "abstained", "curve")
"""Keys of a report that a table shows."""


def read_certificates(folders: Iterable[str | Path]) -> dict[str, dict[str, Any]]:
    """Reports by the name of their folder, from such folders or from folders of them.

    Raises:
        DataError: No report is there, or one is none.
    """
    found: dict[str, dict[str, Any]] = {}
    for folder in map(Path, folders):
        files = sorted([*folder.glob(REPORT), *folder.glob(f"*/{REPORT}")])
        if not files:
            raise DataError(f"{folder}: holds no {REPORT}; write one by certify --save FOLDER")
        for file in files:
            try:
                record = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"{file}: cannot be read ({error}); write it anew") from error
            if not isinstance(record, dict) or not set(NEEDED) <= record.keys():
                raise DataError(f"{file}: is no report of certify; write it anew")
            found[file.parent.name] = record
    return found


def certificate_tables(records: Mapping[str, Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """By scheme, a row per report: accuracies in %, certified / attacked at each budget."""
    rows: dict[str, list[dict[str, str]]] = {}
    for name, record in records.items():
        row = {
            "model": name,
            "without noise": _percent(record["plain_accuracy"]),
            "smoothed": _percent(record["clean_accuracy"]),
            "abstained": _percent(record["abstained"]),
            "attacks": _attacks(record),
        }
        for point in record["curve"]:
            shown = [_percent(point[key]) for key in ("certified", "attacked") if key in point]
            row[str(point["budget"])] = " / ".join(shown) + ("!" if point.get("broken") else "")
        title = f"{record['certificate']}: certified / attacked accuracy in % by {record['unit']}"
        rows.setdefault(title, []).append(row)
    return {title: _in_order(pd.DataFrame(of).fillna("")) for title, of in rows.items()}


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Budgets last, the smallest first: reports may have been made of different ones."""
    columns = [str(column) for column in frame]
    budgets = sorted(filter(str.isdecimal, columns), key=int)
    return frame[[*(column for column in columns if column not in budgets), *budgets]]


def _attacks(record: Mapping[str, Any]) -> str:
    """Extent of the attacks, and if they did anything."""
    if "attacked" not in record["curve"][0]:
        return "none"
    how = "one target at a time" if record.get("local") else "all targets together"
    return f"{how}, no effect" if nothing_fell(record["curve"]) else how


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
