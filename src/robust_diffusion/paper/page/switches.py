"""What each difference between the two readings changes, from the records of `readings`."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.axes import GRAPHS
from robust_diffusion.results.comparison import compare

EXPERIMENT = "readings"
CHANGE = "change in "


@dataclass(frozen=True)
class Row:
    """One setting.

    Args:
        name: What it departs from, and what is its own.
        seeds: How many.
        cells: Per test graph accuracy and change, as text.
        base: It departs from none, so it has no changes.
    """

    name: str
    seeds: str
    cells: tuple[tuple[str, str], ...]
    base: bool


@dataclass(frozen=True)
class Switches:
    """All settings, beside those that they depart from.

    Args:
        columns: Headings of the test graphs.
        rows: Each after the one that it departs from; none without records.
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
    graphs = [
        column for column in frame.columns if not column.startswith(("setting", "seeds", CHANGE))
    ]
    rows = []
    for row in frame.to_dict("records"):
        cells = tuple((str(row[graph]), str(row.get(CHANGE + graph, ""))) for graph in graphs)
        base = not any(change for _, change in cells)
        rows.append(Row(str(row["setting"]), str(row["seeds"]), cells, base=base))
    return Switches(tuple(GRAPHS.get(graph, graph) for graph in graphs), tuple(rows))
