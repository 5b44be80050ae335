"""Boards: models in the order of their worst cases, one board per dataset and budget."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from robust_diffusion.attacks import Budget
from robust_diffusion.evaluation.records import Record
from robust_diffusion.results.cells import CLEAN
from robust_diffusion.results.evidence import CHANCE, KIND, THOROUGH
from robust_diffusion.results.leaderboard.check import OWN, Entry
from robust_diffusion.results.numbers import MINUS
from robust_diffusion.results.worst_case import (
    CONTROL,
    Draw,
    Key,
    ModelOnSplit,
    draw_of,
    key_of,
    limits_in_words,
    recorded_on,
    row_of,
    worst_cases,
)

EXPERIMENTS = ("worst-case", "worst-case-models", "worst-case-graphs")
"""Experiments whose models make the boards."""

PUBLISHED = "published records"

State = Literal[
    "ranked", "control", "not a bound", "claimed", "training not checked", "not checked"
]
"""Place of a row: by its worst case, or without a rank, and why."""


@dataclass
class Row:
    """One model on a board; accuracies in %, means over seeds."""

    model: str  # or its flow; a user's with the hash of its weights
    variant: str  # of its equations; `own` of a user's model
    clean: float
    worst: float  # under any attack
    spread: float | None  # its standard deviation over seeds
    above_mlp: float | None  # the worst accuracy less what an MLP keeps
    seeds: int  # trained models that were attacked
    by: str  # the attack that won most often, with its part
    attacks: list[str]  # all that were tried
    flags: list[str]  # signs that the worst accuracy is no bound
    state: State
    rank: int | None = None
    sources: list[str] = field(default_factory=list)
    reason: str = ""  # why it was not checked


@dataclass(frozen=True)
class Board:
    """All models on one dataset within one budget."""

    dataset: str
    budget: str  # in words
    rows: Sequence[Row]  # ranked ones and the MLP by their worst case, then the others

    @property
    def mlp(self) -> float | None:
        """Worst accuracy of the MLP, in %; `None` without one."""
        return next((row.worst for row in self.rows if row.state == "control"), None)


def published(
    records: Sequence[Record], experiments: Collection[str] = EXPERIMENTS
) -> list[Record]:
    """The finished cells of worst cases, on models that `auto` attacked knowing them.

    Args:
        records: Of anything.
        experiments: That asked for the models.
    """
    found = recorded_on(records, experiments)
    models = worst_cases(found)
    return [
        record
        for record in found
        if (model := models[key_of(record)].get(draw_of(record))) and THOROUGH in model.known_by
    ]


def boards(records: Sequence[Record], reports: Sequence[Entry]) -> list[Board]:
    """Boards of published records and reports.

    Args:
        records: As `published` gives them.
        reports: A checked attack on a published model lowers that model's worst case if it does
            more.
    """
    before = worst_cases(records)
    together: dict[Key, list[Record]] = {}
    for record in [*records, *(record for report in reports for record in report.records)]:
        together.setdefault(key_of(record), []).append(record)
    found = worst_cases([record for of_key in together.values() for record in of_key])
    rows: dict[tuple[str, Budget], list[Row]] = {}
    for key in found:
        row = _row(key, row_of(key, found), together[key], before.get(key, {}), reports)
        rows.setdefault((key.dataset, key.budget), []).append(row)
    for report in reports:
        if not report.records:
            board = (report.claims.dataset or "unknown graph", report.claims.budget)
            rows.setdefault(board, []).append(_unchecked(report))
    made = [
        Board(dataset, _in_words(budget), _ranked(of_board))
        for (dataset, budget), of_board in rows.items()
    ]
    return sorted(made, key=lambda board: (board.dataset, board.mlp is None, board.budget))


def _in_words(budget: Budget) -> str:
    low, high = budget.limits
    return f"{limits_in_words(budget)}, features {low:.4g} to {high:.4g}".replace("-", MINUS)


def _row(
    key: Key,
    line: Mapping[str, Any],
    records: Sequence[Record],
    before: Mapping[Draw, ModelOnSplit],
    reports: Sequence[Entry],
) -> Row:
    state: State = "ranked" if line["bound"] else "not a bound"
    sources = [PUBLISHED, *_better(key, before, reports)]
    if key.variant == OWN:
        own = [report for report in reports if any(key_of(of) == key for of in report.records)]
        trained = [f", trained by {of.training}" if of.training else "" for of in own]
        sources = [of.claims.source + how for of, how in zip(own, trained, strict=True)]
        state = state if all(trained) else "training not checked"
    if not line["thorough"]:
        state = "claimed"
    tried: dict[str, set[str]] = {}
    for record in records:
        kind = KIND.get(record["threat"], record["threat"]).replace("_", " ")
        for attack in record["accuracy"].keys() - {CLEAN}:
            tried.setdefault("chance" if attack in CHANCE else kind, set()).add(attack)
    return Row(
        **{name: line[name] for name in ("model", "variant", "clean", "worst", "seeds", "by")},
        spread=_given(line["spread"]),
        above_mlp=_given(line["above_mlp"]),
        attacks=[f"{kind}: {', '.join(sorted(names))}" for kind, names in sorted(tried.items())],
        flags=[code for code in line["flags"].split(", ") if code],
        state="control" if key.model == CONTROL else state,
        sources=sources,
    )


def _better(
    key: Key, before: Mapping[Draw, ModelOnSplit], reports: Sequence[Entry]
) -> Iterator[str]:
    """Reports that found a lower accuracy of a published model."""
    for report in reports:
        for draw, model in worst_cases(report.records).get(key, {}).items():
            worst = model.lowest["worst"]
            if draw not in before or worst < before[draw].lowest["worst"]:
                found = f"seed {draw[0]} by {model.attack}, {100 * worst:.2f} %"
                yield f"{report.claims.source}: {found}"


def _unchecked(report: Entry) -> Row:
    claims = report.claims
    return Row(
        model=claims.name,
        variant=OWN,
        clean=100 * claims.clean_accuracy,
        worst=100 * min(attack.accuracy for attack in claims.attacks),
        spread=None,
        above_mlp=None,
        seeds=1,
        by="",
        attacks=[f"claimed: {', '.join(attack.name for attack in claims.attacks)}"],
        flags=[],
        state="not checked",
        sources=[claims.source],
        reason=report.reason,
    )


def _ranked(rows: Sequence[Row]) -> list[Row]:
    """Rows in the order of the board, with their ranks; equal accuracies share one."""
    placed = [row for row in rows if row.state in ("ranked", "control")]
    placed.sort(key=lambda row: (-row.worst, row.state != "control", row.model))
    ranked = [row.worst for row in placed if row.state == "ranked"]
    control = next((row.worst for row in placed if row.state == "control"), None)
    for row in rows:
        if row.state == "ranked":
            row.rank = ranked.index(row.worst) + 1
        # A user's model has no MLP of its own split and variant to be paired with.
        if row.variant == OWN and row.state != "not checked" and control is not None:
            row.above_mlp = row.worst - control
    others = [row for row in rows if row not in placed]
    others.sort(key=lambda row: (row.state == "not checked", -row.worst, row.model))
    return [*placed, *others]


def _given(value: float) -> float | None:
    return None if pd.isna(value) else value
