"""Boards: models in the order of their worst cases, as one HTML page and as JSON."""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion import __version__
from robust_diffusion.attacks import Budget
from robust_diffusion.records.records import Record
from robust_diffusion.results.cells import CLEAN
from robust_diffusion.results.evidence import CHANCE, KIND
from robust_diffusion.results.frame import frame, named_by_settings
from robust_diffusion.results.leaderboard.check import OWN, Entry
from robust_diffusion.results.numbers import MINUS, signed
from robust_diffusion.results.worst_case import (
    CONTROL,
    KEY,
    MODEL,
    limits_in_words,
    recorded_on,
    worst_case_table,
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
    records: Sequence[Record], experiments: AbstractSet[str] | None = None
) -> list[Record]:
    """The finished cells on models that `auto` attacked knowing them, within the same budget.

    Args:
        records: Of anything.
        experiments: That asked for the models; `None` for any.
    """
    recorded = recorded_on(records, experiments)
    found = frame(recorded)
    models = worst_cases(found)
    cells = set(found.merge(models[models["thorough"]][MODEL], on=MODEL)["cell"])
    return [record for record in recorded if record["cell"] in cells]


def boards(records: Sequence[Record], reports: Sequence[Entry]) -> list[Board]:
    """Boards of published records and reports, one per dataset and budget.

    Args:
        records: As `published` gives them.
        reports: A checked attack on a published model lowers that model's worst case if it does
            more.
    """
    every = [*records, *(record for report in reports for record in report.records)]
    found = named_by_settings(frame(every))
    table = worst_case_table(worst_cases(found))
    sources = _sources(found, records, reports)
    rows: dict[tuple[str, Budget], list[Row]] = {}
    if not table.empty:
        attacks = found[found["attack"] != CLEAN].groupby(KEY, sort=False)[["threat", "attack"]]
        table = table.join(attacks.apply(_tried).rename("attacks"), on=KEY)
    for line in table.to_dict("records"):
        own, told = line["variant"] == OWN, sources.get(tuple(line[column] for column in KEY), {})
        state: State = "ranked" if line["bound"] else "not a bound"
        if own and not all(told.values()):
            state = "training not checked"
        if not line["thorough"]:
            state = "claimed"
        row = Row(
            **{name: line[name] for name in ("model", "variant", "clean", "worst", "seeds", "by")},
            spread=_given(line["spread"]),
            above_mlp=_given(line["above_mlp"]),
            attacks=line["attacks"],
            flags=[code for code in line["flags"].split(", ") if code],
            state="control" if line["model"] == CONTROL else state,
            sources=[*([] if own else ["published records"]), *told],
        )
        rows.setdefault((line["dataset"], line["budget"]), []).append(row)
    for report in reports:
        if not report.records:
            board = (report.claims.dataset or "unknown graph", report.claims.budget)
            rows.setdefault(board, []).append(_unchecked(report))
    made = [
        Board(dataset, _in_words(budget), _ranked(of_board))
        for (dataset, budget), of_board in rows.items()
    ]
    return sorted(made, key=lambda b: (b.dataset, b.mlp is None, -len(b.rows), b.budget))


def render(boards: Sequence[Board]) -> dict[str, str]:
    """The page, which loads nothing, and the same as data, by the names of their files."""
    page = ENVIRONMENT.get_template("page.html.jinja")
    data = {"boards": [asdict(board) for board in boards], "version": __version__}
    return {
        "leaderboard.html": page.render(boards=boards, version=__version__, signed=signed),
        "leaderboard.json": json.dumps(data, indent=1, allow_nan=False) + "\n",
    }


def _in_words(budget: Budget) -> str:
    low, high = budget.limits
    return f"{limits_in_words(budget)}, features {low:.4g} to {high:.4g}".replace("-", MINUS)


def _tried(attacked: pd.DataFrame) -> list[str]:
    """Names of attacks by what they know."""
    tried: dict[str, set[str]] = {}
    for threat, attack in attacked.itertuples(index=False, name=None):
        kind = "at random" if attack in CHANCE else KIND.get(threat, threat).replace("_", " ")
        tried.setdefault(kind, set()).add(attack)
    return [f"{kind}: {', '.join(sorted(names))}" for kind, names in sorted(tried.items())]


def _sources(
    found: pd.DataFrame, records: Sequence[Record], reports: Sequence[Entry]
) -> dict[tuple[object, ...], dict[str, bool]]:
    """Reports by the row of `worst_case_table` that they shape, and if a training was repeated.

    These are reports of a user's model, and of a lower accuracy of a published one.
    """

    def worst(records: Sequence[Record]) -> pd.DataFrame:
        return worst_cases(found[found["cell"].isin([record["cell"] for record in records])])

    before = worst(records).set_index(MODEL)["worst"].to_dict()
    sources: dict[tuple[object, ...], dict[str, bool]] = {}
    for report in reports:
        for model in worst(report.records).to_dict("records"):
            source, lowest = report.claims.source, model["worst"]
            if model["variant"] == OWN:
                source += f", trained by {report.training}" if report.training else ""
            elif lowest >= before.get(tuple(model[column] for column in MODEL), 1.0):
                continue
            else:
                source += f": seed {model['draw']} by {model['by']}, {100 * lowest:.2f} %"
            key = tuple(model[column] for column in KEY)
            sources.setdefault(key, {})[source] = bool(report.training)
    return sources


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
