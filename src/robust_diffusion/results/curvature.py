"""Effect of recorded networks' curvature terms: the distance of their B from uniform."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from robust_diffusion.records.records import Record
from robust_diffusion.results.frame import frame, named_by_settings
from robust_diffusion.results.table import ResultTable

KEYS = ["dataset", "variant", "flow", "layer"]
LAST = "last"
"""Name of the layer whose state is the logits."""


def curvature_table(records: Sequence[Record]) -> pd.DataFrame:
    """Quantiles of |B deg - 1| over edges in each layer, as means over trained networks.

    Args:
        records: Any; those whose network has a curvature term count, each network once.

    Returns:
        One row per dataset, variant, flow and layer; networks of a sweep are named with their
        settings. `networks` is their number; one column per quantile, such as `90%`; `largest
        90%`, of any network; `same_predictions`, the share in % of test predictions that
        B = 1 / deg at the same weights leaves as they are.
    """
    rows = []
    found = frame(record for record in records if record.get("curvature"))
    cells = named_by_settings(found).drop_duplicates("cell")
    # What was measured tells networks apart: the same one, trained again, has other files.
    measured = [json.dumps(record["curvature"], sort_keys=True) for record in cells["record"]]
    for _, cell in cells[~pd.Series(measured, index=cells.index).duplicated()].iterrows():
        rows += _rows(cell)
    if not rows:
        return pd.DataFrame(columns=KEYS)
    groups = pd.DataFrame(rows).groupby(KEYS, sort=False)
    table = groups.mean()
    table.insert(0, "networks", groups.size())
    table["largest 90%"] = groups["90%"].max()
    return table.reset_index().sort_values(KEYS[:3], kind="stable", ignore_index=True)


def _rows(cell: "pd.Series[Any]") -> list[dict[str, Any]]:
    key = {"dataset": cell["dataset"], "variant": cell["variant"], "flow": cell["model"]}
    measured = cell["record"]["curvature"]
    same = 100 * measured["same_predictions"]
    last = len(measured["layers"]) - 1
    return [
        key | {"layer": LAST if i == last else str(i + 1)} | quantiles | {"same_predictions": same}
        for i, quantiles in enumerate(measured["layers"].values())
    ]


def show_curvature(records: Sequence[Record]) -> ResultTable:
    """The table as text; arguments as of `curvature_table`."""
    table = curvature_table(records)
    shown = table[KEYS].copy()
    shown["networks"] = table.get("networks", pd.Series(dtype=int))
    for column in _quantiles(table):
        name = column if column.startswith("largest") else f"|B deg - 1|, {column}"
        shown[name] = [f"{value:.2g}" for value in table[column]]
    if "same_predictions" in table:
        shown["same predictions"] = [f"{value:.2f}" for value in table["same_predictions"]]
    title = (
        "Distance |B deg - 1| of the modulation from a uniform one over edges, at the initial "
        "state of each layer, and the share in % of test predictions that stay the same when "
        "1 / deg replaces B"
    )
    return ResultTable(title, shown, KEYS, [])


def _quantiles(table: pd.DataFrame) -> list[str]:
    """Columns of quantiles, the lowest first, then that of the largest."""
    named = [column for column in table.columns if column.endswith("%")]
    return sorted(
        named, key=lambda column: (column.startswith("largest"), float(column.split()[-1][:-1]))
    )
