"""What was run: counts, versions and dates over all records of a page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robust_diffusion.evaluation.records import Record, latest_by_cell


@dataclass(frozen=True)
class Facts:
    """What was run.

    Args:
        lines: Records in the files, references and repetitions included.
        finished: Cells of the page's scale and fidelity that finished.
        failed: Such cells that did not.
        others: Cells that other pages show: options -> number of cells.
        codes: Version of the code that shapes results -> number of cells.
        revisions: Git commit -> number of cells.
        processors: GPU, or CPU with its vector instructions -> number of cells; also how many of
            them do not name it.
        packages: Name and version of what they ran with.
        newest: Date of the newest record of the page's cells, as the record says it.
    """

    lines: int
    finished: int
    failed: int
    others: Mapping[str, int]
    codes: Mapping[str, int]
    revisions: Mapping[str, int]
    processors: Mapping[str, int]
    packages: tuple[str, ...]
    newest: str | None


def gather(records: Sequence[Record], *, scale: str, fidelity: str) -> Facts:
    """Sum up records.

    Args:
        records: In the order in which they were appended.
        scale: full or smoke.
        fidelity: paper or released.
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
    times = [str(record["time"]) for record in shown if "time" in record]
    versions = {
        f"{name} {version}"
        for record in shown
        if isinstance(record.get("versions"), dict)
        for name, version in record["versions"].items()
    }
    return Facts(
        lines=len(records),
        finished=len(shown) - failed,
        failed=failed,
        others=dict(sorted(others.items())),
        codes=_counted(shown, "code"),
        revisions=_counted(shown, "revision"),
        processors=dict(Counter(map(_processor, shown)).most_common()),
        packages=tuple(sorted(versions)),
        newest=max(times, default=None),
    )


def _counted(records: Sequence[Record], key: str) -> dict[str, int]:
    return dict(Counter(str(r[key]) for r in records if r.get(key) is not None).most_common())


def _processor(record: Record) -> str:
    timing = record.get("timing") or {}
    return str(record.get("processor") or timing.get("device") or "not recorded")
