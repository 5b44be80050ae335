"""Budgets of a board, and the lowest accuracy within each."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from robust_diffusion.attacks.budget import Budget

Grid = Collection[tuple[int, int]]
"""Budgets of a board: injected nodes, and most edges of each."""

GRID: Grid = ((5, 4), (1, 50), (50, 4), (5, 50), (50, 50))
"""20 to 2,500 edges in all: from where attacks begin to tell to where nearly nothing is left."""


def points_of(budgets: Iterable[Budget], grid: Grid | None = None) -> list[tuple[int, int]]:
    """The budgets of a board by edges in all: those of the grid that are there, or else all.

    Args:
        budgets: Of one dataset.
        grid: Of which all or none is wanted; `None` for `GRID`.
    """
    found = {(of.max_injected_nodes, of.max_edges_per_injected_node) for of in budgets}
    wanted = found & {*(grid or GRID)}
    return sorted(
        wanted or (set() if grid else found), key=lambda point: (point[0] * point[1], point)
    )


def besides(budget: Budget) -> Budget:
    """The limits but those of injected nodes and their edges; alike on all of a board."""
    return replace(budget, max_injected_nodes=1, max_edges_per_injected_node=1)


def lowest_within(models: pd.DataFrame) -> pd.DataFrame:
    """Rows of `worst_cases`, each with the worst case within its budget or any smaller one.

    A graph that spends less than it may is a graph within the budget.
    """
    models = models.dropna(subset="worst").reset_index(drop=True)
    alike = [*("dataset", "variant", "model", "draw", "split"), models["budget"].map(besides)]
    lowest = pd.Series(models.index)
    for _, of in models.groupby(alike, sort=False):
        limits, worst = of[["nodes", "edges"]].to_numpy(int), of["worst"].to_numpy()
        for i, within in enumerate(np.logical_and.reduce(limits[:, None] >= limits, axis=2)):
            least = np.flatnonzero(within)[worst[within].argmin()]
            if worst[least] < worst[i]:
                lowest[of.index[i]] = of.index[least]
    told = ["worst", "by", "flags"]
    return models.drop(columns=told).join(models.loc[lowest, told].reset_index(drop=True))


def area(points: Iterable[tuple[int, int]], heights: Iterable[float]) -> float:
    """Mean height over the logarithm of the injected edges, by the trapezoid rule."""
    edges, of = np.log([nodes * each for nodes, each in points]), np.array([*heights])
    return float(np.trapezoid(of, edges) / np.ptp(edges) if np.ptp(edges) else of.mean())
