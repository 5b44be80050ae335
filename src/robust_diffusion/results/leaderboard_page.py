"""Page of the leaderboard, and its first rows for the README."""

import csv
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from robust_diffusion.config import PUBLISHED
from robust_diffusion.evaluation.flag_codes import DECLARED
from robust_diffusion.records.submission import Submission
from robust_diffusion.results.leaderboard import (
    BOARDS,
    SEEDS,
    Point,
    budget_name,
    budgets_of,
    known_model,
    leaderboard,
)
from robust_diffusion.results.show import template
from robust_diffusion.system.markdown import aligned
from robust_diffusion.system.numbers import MINUS, signed, spread

ABOUT = {
    "cora": ("Cora", 268),
    "pubmed": ("PubMed", 1971),
}
"""Name of each dataset, and the number of its easy target nodes."""

CERTIFIED: Point = (5, 4)
"""Budget at which the certified accuracy is shown."""

FRONT_ROWS = 6
"""Rows of the table in the README."""


@dataclass(frozen=True)
class ReportedAccuracy:
    """Accuracy under attack that a paper reports, in %."""

    model: str
    dataset: str
    by: str  # authors of the model, or others
    attacker: str  # transferred, or knows the model
    clean: str
    clean_std: str
    attacked: str
    attacked_std: str
    attack: str
    budget: str  # "" if the source does not say
    split: str
    source: str
    place: str

    @property
    def url(self) -> str:
        """Address of the source."""
        return url_of(self.source)

    @property
    def setting(self) -> str:
        """Attack, budget and data of the number."""
        return ", ".join(filter(None, [self.attack, self.budget, self.split]))


@cache
def read_reported() -> list[ReportedAccuracy]:
    """Read the numbers that papers report, from `leaderboard-claims.csv`."""
    path = PUBLISHED / "results" / "leaderboard-claims.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [ReportedAccuracy(**row) for row in csv.DictReader(file)]


def certified_accuracies(folder: Path = PUBLISHED / "certificates") -> dict[tuple[str, str], float]:
    """Return the accuracy in % that bi-smoothing certifies at `CERTIFIED`, by dataset and model.

    Args:
        folder: Folder of published certificates, named `<model>-bi_smoothing`.
    """
    found = {}
    for path in sorted(folder.glob("*-bi_smoothing/certificate.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        for cell in report["grid"]:
            if (cell["nodes"], cell["edges_per_node"]) == CERTIFIED:
                model = path.parent.name.removesuffix("-bi_smoothing")
                found[report["dataset"], model] = 100 * cell["certified_accuracy"]
    return found


def url_of(source: str) -> str:
    """Return the address of an entry of references.bib, or the address itself."""
    kind, _, key = source.partition(":")
    homes = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}
    homes["OpenReview"] = "https://openreview.net/forum?id="
    return homes[kind] + key if kind in homes else source


def leaderboard_page(
    frame: pd.DataFrame, submissions: Sequence[tuple[str, Submission]] = ()
) -> str:
    """Return the page of the leaderboard: Markdown with tables in HTML.

    Args:
        frame: Recorded results, with the submissions.
        submissions: Result of `read_submissions`, to list whom each lowered number is due to.
    """
    table = leaderboard(frame, datasets=BOARDS)
    runs = frame.drop_duplicates("run").set_index("run")["record"]
    boards = [_board(table[table["dataset"] == name], name) for name in BOARDS]
    lowered = [
        {
            "model": known_model(runs[run].model_name).name,
            "dataset": ABOUT.get(runs[run].dataset, [runs[run].dataset])[0],
            "budget": _shown((of.nodes, of.edges)),
            "earlier": f"{100 * of.earlier:.1f}",
            "accuracy": f"{100 * of.accuracy:.1f}",
            "by": of,
        }
        for run, of in submissions
        if run in runs
    ]
    content = {"boards": [*filter(None, boards)], "lowered": lowered, "seeds": SEEDS}
    return template("leaderboard").render(**content)


def front_table(frame: pd.DataFrame) -> str:
    """Return the first rows of claimed against measured on Cora, as a Markdown table."""
    board = _only(leaderboard(frame, datasets=BOARDS), "cora")
    largest, point = [*budgets_of(board).items()][-1]
    rows = [row for row in _compared(board, "cora") if row["claim"] is not None][:FRONT_ROWS]
    texts = [
        [
            f"[{row['name']}]({row['url']})",
            f"[{row['claimed']}]({row['claim'].url}), {_front_setting(row['claim'])}",
            row["transferred"],
            row["auto"],
        ]
        for row in rows
    ]
    mlp = board[board["control"]]
    measured = [_cell(mlp[name].max())[0] for name in ("transferred", largest)]
    texts.append(["MLP, which sees no edge", "", *measured])
    header = ["Cora, accuracy in %", "reported under attack"]
    header += ["measured, transferred", f"measured, `auto` {_shown(point)}"]
    return "\n".join(aligned(header, texts, left=[0, 1]))


def _front_setting(claim: ReportedAccuracy) -> str:
    """Return the attack of a number, with budget and data if it is not on GRB's graph."""
    return claim.attack if claim.split.startswith("GRB") else claim.setting


def _only(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Return the longest board of a dataset, without columns of other budgets."""
    board = table[table["dataset"] == dataset]
    board = board[board["features"] == board["features"].iloc[0]] if len(board) else board
    own = budgets_of(board)
    others = [name for name in board if str(name)[:1].isdigit() and name not in own]
    return board.drop(columns=others)


def _shown(point: Point) -> str:
    return budget_name(point).replace("x", " × ")


def _board(table: pd.DataFrame, dataset: str) -> Mapping[str, Any] | None:
    """Return what the template shows of one dataset."""
    board = _only(table, dataset)
    if board.empty:
        return None
    budgets = budgets_of(board)
    notes = _notes(board["flags"])
    numbers = {code: place for place, code in enumerate(notes, start=1)}
    rows = [_row(row, budgets, numbers) for row in board.to_dict("records")]
    name, targets = ABOUT[dataset]
    first = board.iloc[0]
    versions = {version for of_row in board["auto"] for version in of_row.split(", ") if version}
    return {
        "id": dataset,
        "name": name,
        "targets": f"{targets:,}",
        "split": first["split"][:8],
        "variant": ", ".join(sorted(board["variant"].unique())),
        "features": first["features"].replace("-", MINUS).removeprefix("features "),
        "budgets": [(_shown(p).replace(" ", ""), p[0] * p[1]) for p in budgets.values()],
        "largest": _shown([*budgets.values()][-1]),
        "smallest": next(iter(budgets.values())),
        "ranked": [row for row in rows if row["rank"] or row["control"]],
        "others": [row for row in rows if not row["rank"] and not row["control"]],
        "any_ranked": board["rank"].notna().any(),
        "auto": ", ".join(sorted(versions, key=int)),
        "notes": notes,
        "certified": any(row["certified"] for row in rows),
        "compared": _compared(board, dataset),
    }


def _row(
    row: Mapping[Any, Any], budgets: Collection[str], numbers: Mapping[str, int]
) -> dict[str, Any]:
    """Return the cells of one model."""
    about = known_model(row["model"])
    claim = _claim(row["dataset"], row["model"])
    certified = certified_accuracies().get((row["dataset"], row["model"]), math.nan)
    half = (row["high"] - row["low"]) / 2
    area = signed(row["above_mlp"], 1) + (f" ± {half:.1f}" if half == half else "")
    return {
        "control": row["control"],
        "rank": "" if pd.isna(row["rank"]) else str(row["rank"]),
        "name": about.name,
        "url": url_of(about.source),
        "kind": about.kind,
        "variant": row["variant"],
        "reason": re.sub(r"(\d)x(\d)", r"\1×\2", row["reason"]),
        "notes": sorted(numbers[code] for code in row["flags"].split(", ") if code),
        "clean": _cell(row["clean"]),
        "claim": claim,
        "claimed": f"{float(claim.attacked):.1f}" if claim else "",
        "transferred": _cell(row["transferred"]),
        "worst": [_cell(row[name]) for name in budgets],
        "area": (area, row["above_mlp"]) if row["above_mlp"] == row["above_mlp"] else ("–", ""),
        "certified": None if math.isnan(certified) else _cell(certified),
        "seeds": row["seeds"],
    }


def _cell(number: float) -> tuple[str, Any]:
    """Return a number as text, and as it is sorted by."""
    return ("–", "") if math.isnan(number) else (f"{number:.1f}", round(number, 4))


def _claim(dataset: str, model: str, attacker: str | None = None) -> ReportedAccuracy | None:
    """Return the number that is reported of a model: one by its authors before one by others."""
    known = [
        claim
        for claim in read_reported()
        if (claim.dataset, claim.model) == (dataset, model) and attacker in (None, claim.attacker)
    ]
    known.sort(key=lambda claim: (claim.by != "authors", claim.attacker != "transferred"))
    return known[0] if known else None


def _compared(board: pd.DataFrame, dataset: str) -> list[dict[str, Any]]:
    """Return flows and defences of papers, the widest gap between claimed and measured first."""
    largest = [*budgets_of(board)][-1]
    rows = []
    for row in board.to_dict("records"):
        about = known_model(row["model"])
        if about.kind not in ("flow", "defence") or not about.source or ", " in row["model"]:
            continue
        claim = _claim(dataset, row["model"])
        measured = row[largest] if row["auto"] else math.nan
        certified = certified_accuracies().get((dataset, row["model"]), math.nan)
        gap = float(claim.attacked) - measured if claim else math.nan
        rows.append(
            {
                "name": about.name,
                "url": url_of(about.source),
                "claim": claim,
                "claimed": f"{claim.attacked} ± {claim.attacked_std}" if claim else "–",
                "white_box": _claim(dataset, row["model"], "knows the model"),
                "transferred": _cell(row["transferred"])[0],
                "auto": _cell(measured)[0],
                "certified": spread(certified, None, 1).replace("-", "–"),
                "order": (claim is None, math.isnan(gap), -gap if gap == gap else 0, about.name),
            }
        )
    return sorted(rows, key=lambda row: row["order"])


def _notes(flags: "pd.Series[str]") -> dict[str, Markup]:
    """Return the footnote of each flag on a board, those of doubtful numbers first."""
    codes = {code for of_row in flags for code in of_row.split(", ") if code}
    ordered = sorted(codes, key=lambda code: (DECLARED[code].kind != "number", code))
    return {code: _as_html(DECLARED[code].meaning) for code in ordered}


def _as_html(text: str) -> Markup:
    """Convert code spans, and drop links, which are relative to another page."""
    escaped = str(Markup.escape(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)))
    # Escaped above, so that only these tags are markup.
    marked = re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped)
    return Markup(marked)  # noqa: S704 # nosec B704
