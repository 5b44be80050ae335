"""Provenance of a page: counts, versions and dates of its records."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from robust_diffusion.evaluation.records import Record, latest_by_cell


def gather(records: Sequence[Record], *, scale: str, fidelity: str) -> dict[str, Any]:
    """Provenance of the page of one scale and fidelity, as its header shows it.

    Returns:
        `records`: all, repetitions included; `finished` and `failed`: cells of this page; `others`:
        options of other pages and their cells; `codes`, `revisions`, `processors`: cells of each;
        `packages`: names and versions; `newest`: date of the newest record.
    """
    shown: list[Record] = []
    others: Counter[str] = Counter()
    for record in latest_by_cell(records).values():
        own = (record.get("scale", "full"), record.get("fidelity"))
        if own == (scale, fidelity):
            shown.append(record)
        else:
            others[f"--scale {own[0]} --fidelity {own[1]}"] += 1
    failed = sum("error" in record for record in shown)
    versions = [record.get("versions") for record in shown]
    return {
        "records": len(records),
        "finished": len(shown) - failed,
        "failed": failed,
        "others": dict(sorted(others.items())),
        "codes": _counted(record.get("code") for record in shown),
        "revisions": _counted(record.get("revision") for record in shown),
        "processors": _counted(map(_processor, shown)),
        "packages": sorted(
            {f"{name} {v}" for own in versions if isinstance(own, dict) for name, v in own.items()}
        ),
        "newest": max((str(record["time"]) for record in shown if "time" in record), default=None),
    }


def _counted(values: Iterable[object]) -> dict[str, int]:
    return dict(Counter(str(value) for value in values if value is not None).most_common())


def _processor(record: Record) -> str:
    """GPU, or CPU with its vector instructions."""
    timing = record.get("timing") or {}
    return str(record.get("processor") or timing.get("device") or "not recorded")
