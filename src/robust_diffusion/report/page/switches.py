"""What each difference between the two readings changes, from the records of `readings`."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_diffusion.evaluation.records import Record
from robust_diffusion.report.axes import GRAPHS
from robust_diffusion.report.comparison import compare

EXPERIMENT = "readings"


@dataclass(frozen=True)
class Row:
    """One setting.

    Args:
        cells: As text, its name first.
        base: It departs from none, so it has no changes.
    """

    cells: tuple[str, ...]
    base: bool


@dataclass(frozen=True)
class Switches:
    """All settings, beside those that they depart from.

    Args:
        columns: Headings.
        rows: In the order in which they were run; none without records.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def switches(records: Sequence[Record], *, scale: str) -> Switches:
    """The settings of both readings.

    Args:
        records: In the order in which they were appended.
        scale: full or smoke.
    """
    frame = compare(records, EXPERIMENT, scale=scale)
    changes = [column for column in frame.columns if column.startswith("change in ")]
    rows = tuple(
        Row(tuple(map(str, cells)), base=not any(row[column] for column in changes))
        for row, cells in zip(frame.to_dict("records"), frame.to_numpy(), strict=True)
    )
    return Switches(tuple(GRAPHS.get(c, _heading(c)) for c in frame.columns), rows)


def _heading(column: str) -> str:
    return "change" if column.startswith("change in ") else column
