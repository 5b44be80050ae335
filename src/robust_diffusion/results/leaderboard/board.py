"""Boards: models in the order of their curves of worst cases, as one HTML page and as JSON."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion import __version__
from robust_diffusion.records.records import Record
from robust_diffusion.results.cells import CLEAN
from robust_diffusion.results.evidence import CHANCE, KIND
from robust_diffusion.results.frame import frame, named_by_settings
from robust_diffusion.results.leaderboard.grid import (
    Grid,
    area,
    besides,
    lowest_within,
    points_of,
)
from robust_diffusion.results.numbers import MINUS, signed
from robust_diffusion.results.worst_case import (
    CONTROL,
    MODEL,
    all_of,
    most_frequent,
    recorded_on,
    worst_cases,
)

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,  # names come from records and reports
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)

State = Literal["ranked", "control", "budgets missing", "not a bound"]
"""Place of a row: by its curve, or without a rank, and why."""


NAME = ["variant", "model"]
"""Columns that name a row of a board."""


@dataclass
class Row:
    """One model on a board; accuracies in %, means over seeds."""

    model: str  # or its flow
    variant: str  # of its equations
    clean: float
    curve: list[float | None]  # the lowest under any attack, at each budget of the board
    above_mlp: float | None  # area between the curve and the MLP, in points; `None` on a part of it
    spread: float | None  # its standard deviation over seeds
    seeds: int  # trained models that were attacked, at every budget if any was
    by: str  # the attack that won most often, with its part
    attacks: list[str]  # all that were tried
    flags: list[str]  # signs that an accuracy is no bound
    state: State
    rank: int | None = None


@dataclass(frozen=True)
class Board:
    """All models on one dataset, by what they keep within budgets of growing size."""

    dataset: str
    limits: str  # of features, in words
    points: list[tuple[int, int]]  # the budgets: injected nodes, edges of each
    rows: Sequence[Row]  # ranked ones and the MLP by their area, then the others

    @property
    def mlp(self) -> list[float | None]:
        """Curve of the MLP; empty without one."""
        return next((row.curve for row in self.rows if row.state == "control"), [])

    def drawn(self, curve: list[float | None]) -> str:
        """A curve as `x,y` of a square of 100, over the logarithm of the edges in all."""
        edges = [math.log(nodes * each) for nodes, each in self.points]
        scale = 100 / ((edges[-1] - edges[0]) or 1)
        pairs = [(x, y) for x, y in zip(edges, curve, strict=False) if y is not None]
        return " ".join(f"{scale * (x - edges[0]):.1f},{100 - y:.1f}" for x, y in pairs)


def published(
    records: Sequence[Record], experiments: AbstractSet[str] | None = None
) -> list[Record]:
    """Return the finished cells on models that `auto` attacked knowing them.

    Where cells of one dataset attack different sets of targets, the set of most of them counts.

    Args:
        records: Of anything.
        experiments: That asked for the models; `None` for any.
    """
    recorded = recorded_on(records, experiments)
    sets = Counter((of["dataset"], of.get("difficulty")) for of in recorded)
    usual: dict[str, Any] = {}
    for (dataset, targets), _ in sets.most_common():
        usual.setdefault(dataset, targets)
    recorded = [of for of in recorded if of.get("difficulty") == usual[of["dataset"]]]
    found = frame(recorded)
    models = worst_cases(found)
    cells = set(found.merge(models[models["thorough"]][MODEL], on=MODEL)["cell"])
    return [record for record in recorded if record["cell"] in cells]


def boards(records: Sequence[Record], grid: Grid | None = None) -> list[Board]:
    """Return boards of published records, one per dataset and limits of features.

    Models are ranked by the area between their curve and the MLP's, over the logarithm of the
    injected edges. It may be negative: cut off at 0, all that fall early would be alike. A curve is
    the mean over the seeds that were attacked at every budget; where there is none, over all, and
    the model has no rank. An MLP's is its clean accuracy on the same seed and split, or else the
    mean over all.

    Args:
        records: As `published` returns them.
        grid: The budgets; `None` for `GRID`.
    """
    found = named_by_settings(frame(records))
    found = found[found["nodes"].fillna(0) > 0]  # a modification is on no board
    models = lowest_within(worst_cases(found))
    made = [
        _board(of, found, points)
        for _, of in models.groupby(["dataset", models["budget"].map(besides)], sort=False)
        if (points := points_of(of.loc[of["thorough"], "budget"], grid))
    ]
    return sorted(made, key=lambda board: (board.dataset, -len(board.rows), board.limits))


def _board(models: pd.DataFrame, found: pd.DataFrame, points: list[tuple[int, int]]) -> Board:
    """The board of one dataset and limits, of rows as of `lowest_within`."""
    alike = ["variant", "draw", "split"]
    mlp = models[models["model"] == CONTROL]
    line = mlp.groupby(alike)["clean"].first().rename("line")
    # Without an MLP, the area is that below the curve.
    line = models.join(line, on=alike)["line"].fillna(line.mean() if len(line) else 0)
    models = models.assign(height=100 * (models["worst"] - line))
    models["point"] = [*zip(models["nodes"], models["edges"], strict=True)]
    # Few rows at a time: what is compared below are texts.
    kept = dict(iter(found[found["dataset"] == models["dataset"].iloc[0]].groupby(NAME)))
    rows = [
        _row(of, kept[name][kept[name]["cell"].isin(_cells(of, kept[name]))], points)
        for name, of in models.groupby(NAME, sort=False)
    ]
    low, high = models["budget"].iloc[0].limits
    limits = f"features {low:.4g} to {high:.4g}".replace("-", MINUS)
    return Board(models["dataset"].iloc[0], limits, points, _ranked(rows))


def _row(models: pd.DataFrame, found: pd.DataFrame, points: list[tuple[int, int]]) -> Row:
    """One model, from its rows and those of the frame."""
    on_board = models[models["point"].isin(points)]
    by_model = on_board.groupby(["draw", "split"])
    whole = on_board[by_model["thorough"].transform("sum") == len(points)]
    used = whole if len(whole) else on_board if len(on_board) else models
    areas = [
        area(points, of.set_index("point")["height"].reindex(points))
        for _, of in whole.groupby(["draw", "split"])
    ]
    curve = (100 * used.groupby("point")["worst"].mean()).to_dict()
    model, variant = (str(models[column].iloc[0]) for column in ("model", "variant"))
    states: dict[State, bool] = {
        "control": model == CONTROL,
        "budgets missing": not areas,
        "not a bound": bool(all_of(used["flags"])),
        "ranked": True,
    }
    return Row(
        model=model,
        variant=variant,
        clean=100 * used["clean"].mean(),
        curve=[curve.get(point) for point in points],
        above_mlp=float(np.mean(areas)) if areas else None,
        spread=float(np.std(areas, ddof=1)) if len(areas) > 1 else None,
        seeds=used["draw"].nunique(),
        by=most_frequent(used),
        attacks=_tried(found.loc[found["attack"] != CLEAN, ["threat", "attack"]]),
        flags=sorted(all_of(used["flags"])),
        state=next(state for state, holds in states.items() if holds),
    )


def render(boards: Sequence[Board]) -> dict[str, str]:
    """The page, which loads nothing, and the same as data, by the names of their files."""
    page = ENVIRONMENT.get_template("page.html.jinja")
    data = {"boards": [asdict(board) for board in boards], "version": __version__}
    return {
        "leaderboard.html": page.render(boards=boards, version=__version__, signed=signed),
        "leaderboard.json": json.dumps(data, indent=1, allow_nan=False) + "\n",
    }


def _cells(models: pd.DataFrame, found: pd.DataFrame) -> "pd.Series[Any]":
    """Ids of the cells that rows of `worst_cases` were made of."""
    return found.merge(models[MODEL], on=MODEL)["cell"]


def _tried(attacked: pd.DataFrame) -> list[str]:
    """Names of attacks by what they know."""
    tried: dict[str, set[str]] = {}
    for threat, attack in attacked.itertuples(index=False, name=None):
        kind = "at random" if attack in CHANCE else KIND.get(threat, threat).replace("_", " ")
        tried.setdefault(kind, set()).add(attack)
    return [f"{kind}: {', '.join(sorted(names))}" for kind, names in sorted(tried.items())]


def _ranked(rows: Sequence[Row]) -> list[Row]:
    """Rows in the order of the board, with their ranks; equal areas share one."""
    placed = [
        row for row in rows if row.state in ("ranked", "control") and row.above_mlp is not None
    ]
    placed.sort(key=lambda row: (-_height(row), row.state != "control", row.model))
    ranked = [_height(row) for row in placed if row.state == "ranked"]
    for row in placed:
        if row.state == "ranked":
            row.rank = ranked.index(_height(row)) + 1
    others = [row for row in rows if row not in placed]
    others.sort(key=lambda row: (row.above_mlp is None, -_height(row), row.model))
    return [*placed, *others]


def _height(row: Row) -> float:
    return round(row.above_mlp or 0, 9)
