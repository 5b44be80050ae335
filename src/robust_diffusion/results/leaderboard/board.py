"""Boards: models in the order of their worst cases, one board per dataset and budget."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from robust_diffusion.attacks import Budget
from robust_diffusion.evaluation.records import (
    Record,
    experiments_asking,
    latest_by_cell,
)
from robust_diffusion.results.cells import CLEAN, is_tested
from robust_diffusion.results.leaderboard.check import OWN, Checked, Unchecked
from robust_diffusion.results.model_names import model_name
from robust_diffusion.results.numbers import MINUS
from robust_diffusion.results.worst_case import (
    CHANCE,
    CONTROL,
    KIND,
    SEEN,
    limits_in_words,
    worst_case_table,
)

EXPERIMENTS = ("worst-case", "worst-case-models", "worst-case-graphs", "single-attacks")
"""Experiments whose cells make the boards."""

THOROUGH = "auto"
"""The attack that every ranked model has faced, by an attacker who knows it."""

PUBLISHED = "published records"

State = Literal["ranked", "control", "not a bound", "without auto", "not checked"]
"""Place of a row: by its worst case, or without a rank, and why."""


@dataclass
class Row:
    """One model on a board; accuracies in %.

    Args:
        model: By its own name or that of its flow.
        variant: Of its equations; `own` of a user's model.
        clean: Accuracy on the clean graph, a mean over seeds as are the others.
        worst: The lowest accuracy under any attack.
        spread: Its standard deviation over seeds; `None` of a single one.
        above_mlp: `worst` less what an MLP keeps, in points; `None` without an MLP.
        seeds: Trained models that were attacked.
        by: The attack that won most often, with its part.
        attacks: All attacks that were tried.
        flags: Signs that `worst` is no bound.
        state: Its place.
        rank: From 1; `None` without a rank.
        sources: Where the numbers come from.
        reason: Why it was not checked.
    """

    model: str
    variant: str
    clean: float
    worst: float
    spread: float | None
    above_mlp: float | None
    seeds: int
    by: str
    attacks: list[str]
    flags: list[str]
    state: State
    rank: int | None = None
    sources: list[str] = field(default_factory=list)
    reason: str = ""


@dataclass(frozen=True)
class Board:
    """All models on one dataset within one budget.

    Args:
        dataset: Of the graph.
        budget: In words.
        rows: Ranked ones and the MLP by their worst case, then those without a rank.
    """

    dataset: str
    budget: str
    rows: Sequence[Row]

    @property
    def mlp(self) -> float | None:
        """Worst accuracy of the MLP, in %; `None` without one."""
        return next((row.worst for row in self.rows if row.state == "control"), None)


Place = tuple[str, str]
"""Variant and model of a row."""


def published(
    records: Sequence[Record], experiments: Collection[str] = EXPERIMENTS
) -> list[Record]:
    """The finished cells of worst cases, on models that `auto` attacked knowing them.

    A model that has faced less has no worst case yet, and would raise the mean over its seeds.

    Args:
        records: Of anything.
        experiments: That asked for the cells.
    """
    asking = experiments_asking(records)
    found = [
        record
        for record in latest_by_cell(records).values()
        if is_tested(record)
        and record.get("scale", "full") == "full"
        and set(asking.get(record["cell"], ())) & set(experiments)
    ]
    attacked = {
        _trained(record)
        for record in found
        if THOROUGH in record["accuracy"] and KIND[record["threat"]] in SEEN
    }
    return [record for record in found if _trained(record) in attacked]


def boards(records: Sequence[Record], reports: Iterable[Checked | Unchecked]) -> list[Board]:
    """Boards of published records and reports.

    Args:
        records: As `published` gives them.
        reports: That were checked, or could not be. A checked attack on a published model lowers
            that model's worst case if it does more.
    """
    reports = list(reports)
    checked = [report for report in reports if isinstance(report, Checked)]
    groups: dict[tuple[str, Budget], list[Record]] = {}
    for record in [*records, *(record for report in checked for record in report.records)]:
        groups.setdefault(_board_of(record), []).append(record)
    rows = {board: _rows(board, of_board, records, checked) for board, of_board in groups.items()}
    for report in reports:
        if isinstance(report, Unchecked):
            board = (report.claims.dataset or "unknown graph", report.claims.budget)
            rows.setdefault(board, []).append(_unchecked(report))
    found = [
        Board(dataset, _in_words(budget), _ranked(of_board))
        for (dataset, budget), of_board in rows.items()
    ]
    return sorted(found, key=lambda board: (board.dataset, board.mlp is None, board.budget))


def _in_words(budget: Budget) -> str:
    low, high = budget.limits
    return f"{limits_in_words(budget)}, features {low:.4g} to {high:.4g}".replace("-", MINUS)


def _board_of(record: Record) -> tuple[str, Budget]:
    return record["dataset"], Budget(**record["budget"]["declared"])


def _rows(
    board: tuple[str, Budget],
    of_board: Sequence[Record],
    records: Sequence[Record],
    reports: Sequence[Checked],
) -> list[Row]:
    lines: list[dict[str, Any]] = worst_case_table(of_board).to_dict("records")  # type: ignore[assignment]
    tried = _tried(of_board)
    sources = _sources(
        [record for record in records if _board_of(record) == board],
        {r.source: [record for record in r.records if _board_of(record) == board] for r in reports},
    )
    rows = []
    for line in lines:
        place = (line["variant"], line["model"])
        rows.append(_row(line, tried[place], sources.get(place, [])))
    return rows


def _trained(record: Record) -> tuple[Any, ...]:
    keys = ("dataset", "fidelity", "seed", "split")
    return (*(record[key] for key in keys), model_name(record))


def _place(record: Record) -> Place:
    return record["fidelity"], model_name(record)


def _tried(records: Iterable[Record]) -> dict[Place, dict[str, list[str]]]:
    """Attacks on each model, by what the attacker looks at."""
    found: dict[Place, dict[str, list[str]]] = {}
    for record in records:
        kinds = found.setdefault(_place(record), {})
        for attack in record["accuracy"]:
            if attack != CLEAN:
                kind = "chance" if attack in CHANCE else KIND[record["threat"]]
                if attack not in kinds.setdefault(kind, []):
                    kinds[kind].append(attack)
    return found


def _sources(
    records: Iterable[Record], reports: Mapping[str, Iterable[Record]]
) -> dict[Place, list[str]]:
    """Reports that a row owes its numbers to; a published model has those that lowered it."""
    before = _lowest(records)
    found: dict[Place, list[str]] = {}
    for source, measured in reports.items():
        for (place, seed, split), (accuracy, attack) in _lowest(measured).items():
            told = f"report {source}"
            if place[0] != OWN:
                if accuracy >= before.get((place, seed, split), (math.inf, ""))[0]:
                    continue
                told += f": seed {seed} by {attack}, {100 * accuracy:.2f} %"
            found.setdefault(place, []).append(told)
    return found


def _lowest(records: Iterable[Record]) -> dict[tuple[Place, int, str], tuple[float, str]]:
    """The lowest accuracy of each trained model, and the attack that reached it."""
    found: dict[tuple[Place, int, str], tuple[float, str]] = {}
    for record in records:
        trained = (_place(record), record["seed"], record["split"])
        here = min((accuracy, attack) for attack, accuracy in record["accuracy"].items())
        found[trained] = min(here, found.get(trained, (math.inf, "")))
    return found


def _row(line: Mapping[str, Any], tried: Mapping[str, Sequence[str]], sources: list[str]) -> Row:
    flags = [code for code in line["flags"].split(", ") if code]
    state: State = "not a bound" if flags else "ranked"
    if not any(THOROUGH in tried.get(kind, ()) for kind in SEEN):
        state = "without auto"
    if line["model"] == CONTROL:
        state = "control"
    return Row(
        model=line["model"],
        variant=line["variant"],
        clean=line["clean"],
        worst=line["worst"],
        spread=_given(line["spread"]),
        above_mlp=_given(line["above_mlp"]),
        seeds=line["seeds"],
        by=line["by"],
        attacks=[
            f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in sorted(tried.items())
        ],
        flags=flags,
        state=state,
        sources=sources if line["variant"] == OWN else [PUBLISHED, *sources],
    )


def _unchecked(report: Unchecked) -> Row:
    claims = report.claims
    return Row(
        model=f"{claims.model}, {claims.source}",
        variant=OWN,
        clean=100 * claims.clean_accuracy,
        worst=100 * claims.robust_accuracy,
        spread=None,
        above_mlp=None,
        seeds=1,
        by="",
        attacks=[f"claimed: {', '.join(attack.name for attack in claims.attacks)}"],
        flags=[],
        state="not checked",
        sources=[f"report {claims.source}"],
        reason=report.reason,
    )


def _ranked(rows: Sequence[Row]) -> list[Row]:
    """Rows in the order of the board, with their ranks; equal accuracies share one."""
    placed = [row for row in rows if row.state in ("ranked", "control")]
    placed.sort(key=lambda row: (-row.worst, row.state != "control", row.model))
    ranked = [row.worst for row in placed if row.state == "ranked"]
    control = next((row.worst for row in placed if row.state == "control"), None)
    for row in placed:
        if row.state == "ranked":
            row.rank = ranked.index(row.worst) + 1
    for row in rows:
        # A user's model has no MLP of its own split and variant to be paired with.
        if row.variant == OWN and row.state != "not checked" and control is not None:
            row.above_mlp = row.worst - control
    others = [row for row in rows if row not in placed]
    return [*placed, *sorted(others, key=lambda row: (row.state == "not checked", -row.worst))]


def _given(value: float) -> float | None:
    return None if pd.isna(value) else value
