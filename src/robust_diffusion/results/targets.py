"""Worst cases by target nodes, and how the ranking of models depends on them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from robust_diffusion.records.records import Record, latest_by_run
from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.numbers import MINUS, spread
from robust_diffusion.results.table import ResultTable
from robust_diffusion.results.worst_case import limits_in_words, worst_case_table, worst_cases

_SHOWN = ("clean", "worst")


def show_targets(records: Sequence[Record]) -> ResultTable:
    """Tabulate each model's clean accuracy and worst case at each set of targets.

    The last row has Kendall's rank correlation (tau-b) of the models with that at the first set,
    where at least two models differ in both. Target choice can change a ranking, arXiv:2605.05534.

    Args:
        records: Runs of one dataset and budget; failed ones count for nothing.
    """
    latest = latest_by_run(records).values()
    sets = dict.fromkeys(str(record.get("difficulty")) for record in latest)
    found = {name: [of for of in latest if str(of.get("difficulty")) == name] for name in sets}
    tables = {name: _table(of) for name, of in found.items()}
    tables = {name: table for name, table in tables.items() if not table.empty}
    if not tables:
        return ResultTable("no finished run", pd.DataFrame({"model": []}), ["model"], [])
    first, *_ = tables.values()
    notes = [
        f"! {model}, {name}: not a bound: {flags}"
        for name, table in tables.items()
        for model, flags in table["flags"].items()
        if flags
    ]
    cells = pd.DataFrame(index=first.index)
    for name, table in tables.items():
        rows = table.reindex(cells.index)[[*_SHOWN, "flags"]].fillna({"flags": ""})
        cells[name] = [
            f"{spread(clean, None, 1)} to {spread(worst, None, 1)}{' !' * bool(flags)}"
            for clean, worst, flags in rows.itertuples(index=False)
        ]
    cells.loc["Kendall's tau"] = [
        " to ".join(_tau(table[of], first[of]) for of in _SHOWN) for table in tables.values()
    ]
    cells.insert(0, "seeds", [*first["seeds"].astype(str), ""])
    title = (
        f"{', '.join(first['dataset'].unique())}: clean accuracy and the lowest that any attack "
        f"reached, in %, by targets, within {limits_in_words(first['budget'].iloc[0])}"
    )
    cells = cells.rename_axis("model").reset_index()
    return ResultTable("; ".join([title, *describe_cuts(records)]), cells, ["model"], notes)


def _table(records: Sequence[Record]) -> pd.DataFrame:
    """Return the rows of `worst_case_table` by model, the most accurate first."""
    table = worst_case_table(worst_cases(narrow_frame(records)))
    return table if table.empty else table.set_index("model").sort_values("clean", ascending=False)


def _tau(values: "pd.Series[float]", others: "pd.Series[float]") -> str:
    """Return Kendall's tau-b; importing it from `scipy.stats` would take a second."""
    pairs = pd.concat([values, others], axis=1, join="inner").dropna().to_numpy()
    first, second = (np.sign(np.subtract.outer(column, column)) for column in pairs.T)
    ties = np.sqrt((first**2).sum() * (second**2).sum())
    return f"{(first * second).sum() / ties:.2f}".replace("-", MINUS) if ties else "-"
