"""Main effects of a two-level factorial, each switch averaged over all settings of the others."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from robust_diffusion.records.records import Record
from robust_diffusion.results.cells import is_tested
from robust_diffusion.results.numbers import p_value, signed
from robust_diffusion.results.significance import holm
from robust_diffusion.results.table import ResultTable, summarize

LEVEL = 0.95
"""Level of the confidence intervals."""


def show_effects(records: Sequence[Record]) -> ResultTable:
    """Main effect of each option that takes two values, in points of accuracy.

    Least squares of accuracy on the options, coded -1/2 for the value that was run first and +1/2
    for the other, and on the seeds; options that always change together are one. Only seeds that
    all settings have are counted. P-values are Holm-corrected over the table.

    Reference: Box, Hunter and Hunter 2005, "Statistics for Experimenters", chapters 5 and 6.

    Args:
        records: Cells of one experiment.

    Returns:
        One row per option, with effect, 95 % interval and p-value per test graph. While cells are
        missing without which no effect can be told, the accuracy of each setting.
    """
    cells, records = records, [record for record in records if is_tested(record)]
    if not records:
        return summarize(cells)
    settings = pd.DataFrame([r["overrides"] for r in records]).drop(columns="seed", errors="ignore")
    seeds = pd.Series([r["seed"] for r in records])
    drawn = settings.groupby(list(settings), dropna=False).ngroup()
    whole = seeds.groupby(seeds).transform("size") == drawn.nunique()
    settings, seeds = settings[whole], seeds[whole]
    levels = {key: list(values.unique()) for key, values in settings.items()}
    codes: dict[tuple[float, ...], list[str]] = {}
    for key, of in levels.items():
        if len(of) == 2:
            coded = tuple(np.where(settings[key] == of[0], -0.5, 0.5))
            codes.setdefault(coded, []).append(str(key))
    blocks = pd.get_dummies(seeds).to_numpy(float)
    design = np.column_stack([*codes, blocks])
    free = len(design) - design.shape[1]
    if not codes or free < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return summarize(cells)
    graphs = list(records[0]["accuracy"])
    found = {}
    for graph in graphs:
        accuracy = np.array(
            [100 * r["accuracy"][graph] for r, kept in zip(records, whole, strict=True) if kept]
        )
        found[graph] = _effects(design, accuracy, len(codes))
    corrected = holm([p for _, _, of in found.values() for p in of])
    rows = []
    for i, keys in enumerate(codes.values()):
        first = [f"{key.rpartition('.')[2]}={_short(levels[key][1])}" for key in keys]
        row = {"switch": ", ".join(first)}
        for j, (graph, (effect, margin, _)) in enumerate(found.items()):
            low, high = (signed(effect[i] + side * margin[i], 2) for side in (-1, 1))
            p = p_value(corrected[j * len(codes) + i])
            row[f"effect on {graph}"] = f"{signed(effect[i], 2)} [{low}, {high}] (p {p})"
        rows.append(row)
    title = (
        f"Main effects in points of accuracy over {drawn.nunique()} settings and "
        f"{seeds.nunique()} seeds, with 95 % intervals; p Holm-corrected over the table"
    )
    return ResultTable(title, pd.DataFrame(rows), ["switch"], [])


def _effects(
    design: np.ndarray, accuracy: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """The first `count` coefficients, half the width of their intervals, and their p-values."""
    inverse = np.linalg.inv(design.T @ design)
    effects = inverse @ design.T @ accuracy
    free = len(accuracy) - design.shape[1]
    error = np.sqrt(np.sum((accuracy - design @ effects) ** 2) / free * np.diag(inverse))[:count]
    effects = effects[:count]
    p_values = 2 * stats.t.sf(np.abs(effects) / error, free)
    return effects, stats.t.ppf((1 + LEVEL) / 2, free) * error, list(p_values)


def _short(value: str) -> str:
    return "on" if value.startswith("{") else value
