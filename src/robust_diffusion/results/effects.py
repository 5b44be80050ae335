"""Main effects of a two-level factorial: each switch, averaged over all settings of the others."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special

from robust_diffusion.records.records import Record, is_tested
from robust_diffusion.results.numbers import LEVEL, holm, p_value, signed
from robust_diffusion.results.table import ResultTable, summarize


def show_effects(records: Sequence[Record]) -> ResultTable:
    """Estimate the main effect of each two-valued option, in points of accuracy.

    Least squares of accuracy on the options, coded -1/2 for the value that was run first and +1/2
    for the other, and on the seeds; options that always change together are one. Only seeds that
    all settings have are counted. P-values are Holm-corrected over the table.

    Reference: Box, Hunter and Hunter 2005, "Statistics for Experimenters", chapters 5 and 6.

    Args:
        records: Runs of one experiment.

    Returns:
        One row per option, with effect, 95 % interval and p-value per test graph. While runs are
        missing without which no effect can be told, the accuracy of each setting.
    """
    tested = [record for record in records if is_tested(record)]
    if not tested:
        return summarize(records)
    settings = pd.DataFrame([r["overrides"] for r in tested]).drop(columns="seed", errors="ignore")
    seeds = pd.Series([record["seed"] for record in tested])
    number = settings.groupby(list(settings), dropna=False).ngroups
    whole = seeds.groupby(seeds).transform("size") == number
    accuracy = 100 * pd.DataFrame([record["accuracy"] for record in tested])[whole]
    settings, seeds = settings[whole], seeds[whole]
    codes: dict[tuple[float, ...], list[str]] = {}  # of the options that change together
    for key, values in settings.items():
        first, *others = values.unique() if len(values) else [None]
        if len(others) == 1:
            value = "on" if str(others[0]).startswith("{") else others[0]
            named = f"{str(key).rpartition('.')[2]}={value}"
            codes.setdefault(tuple(np.where(values == first, -0.5, 0.5)), []).append(named)
    design = np.column_stack([*codes, pd.get_dummies(seeds).to_numpy(float)])
    freedom = len(design) - design.shape[1]
    if not codes or freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return summarize(records)
    inverse = np.linalg.inv(design.T @ design)
    effects = inverse @ design.T @ accuracy.to_numpy()
    squares = ((accuracy.to_numpy() - design @ effects) ** 2).sum(axis=0) / freedom
    # Per option and graph.
    effects = effects[: len(codes)]
    errors = np.sqrt(np.outer(np.diag(inverse), squares))[: len(codes)]
    p_values = 2 * special.stdtr(freedom, -np.abs(effects) / errors)
    corrected = np.array(holm(list(p_values.T.ravel()))).reshape(p_values.T.shape).T
    margins = special.stdtrit(freedom, (1 + LEVEL) / 2) * errors
    rows = []
    for i, names in enumerate(codes.values()):
        row = {"switch": ", ".join(names)}
        for j, graph in enumerate(accuracy):
            effect, margin = effects[i, j], margins[i, j]
            ends = f"{signed(effect - margin, 2)}, {signed(effect + margin, 2)}"
            p = p_value(corrected[i, j])
            row[f"effect on {graph}"] = f"{signed(effect, 2)} [{ends}] (p {p})"
        rows.append(row)
    title = (
        f"Main effects in points of accuracy over {number} settings and {seeds.nunique()} seeds, "
        "with 95 % intervals; p Holm-corrected over the table"
    )
    return ResultTable(title, pd.DataFrame(rows), ["switch"], [])
