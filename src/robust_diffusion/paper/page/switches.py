"""Effect of each difference between the two variants, from the records of `readings`."""

from collections.abc import Sequence
from typing import Any

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.axes import GRAPHS
from robust_diffusion.results.comparison import compare

EXPERIMENT = "readings"
CHANGE = "change in "


def switches(records: Sequence[Record], *, scale: str) -> dict[str, Any]:
    """The settings of both variants, each after the one that it departs from.

    Empty without records. A row with `base` departs from none; its cells are accuracy and change
    per test graph.
    """
    frame = compare(records, EXPERIMENT, scale=scale)
    graphs = [name for name in frame.columns if not name.startswith(("setting", "seeds", CHANGE))]
    rows = []
    for row in frame.to_dict("records"):
        cells = [(str(row[graph]), str(row.get(CHANGE + graph, ""))) for graph in graphs]
        base = not any(change for _, change in cells)
        rows.append({"name": row["setting"], "seeds": row["seeds"], "cells": cells, "base": base})
    if not rows:
        return {}
    return {"columns": [GRAPHS.get(graph, graph) for graph in graphs], "rows": rows}
