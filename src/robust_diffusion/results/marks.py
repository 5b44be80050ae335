"""Marks: remarks on one cell of a table, in a line each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.records.identity import settings_of
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.results.evidence import CHANCE, KIND, SEEN
from robust_diffusion.system.numbers import mean_and_std

MarkKind = Literal["warning", "failed", "no data", "seeds", "code", "settings", "budget"]

EPS = 1e-6
"""Tolerance for the rounding of features to 32-bit floats."""

FORMER: Mapping[str, str] = {
    "changes no prediction": "no_effect",
    "features are out of range": "budget_overspent",
    "logits are not finite": "logits_not_finite",
    "weaker than chance": "weaker_than_chance",
}
"""Texts of warnings in records that have no flags -> the flag."""


class Mark(NamedTuple):
    """Remark on a cell.

    The kind is one of: a `warning` of an attack; seeds that `failed` or had `no data`; fewer
    `seeds` than other cells; results of several versions of the `code`; runs of other `settings`
    that were left out; or a `budget` other than the printed one.
    """

    kind: MarkKind
    text: str
    of_table: str = ""  # the same remark without what only holds for this cell
    code: str = ""  # attack and flag; a table prints remarks with the same code once


def named_seeds(seeds: Sequence[int]) -> str:
    """Name seeds in words."""
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))


def coded_warnings(record: Record, graph: str) -> list[tuple[str, str]]:
    """Return the flag and the text of each warning about a graph."""
    lines, codes = record.warnings.get(graph, []), record.flags.get(graph, [])
    if len(codes) < len(lines):
        codes = [next((f for text, f in FORMER.items() if text in line), line) for line in lines]
    # As older records call the control.
    lines = [line.replace("than chance:", "than the random control:") for line in lines]
    return list(zip(codes, lines, strict=False))


def marks_of(
    runs: Sequence[Any], failures: Sequence[Any], left_out: int, printed: Mapping[str, Any]
) -> Iterator[Mark]:
    """Yield the marks of a cell that follow from its own runs.

    Args:
        runs: Rows of a frame, one per seed.
        failures: Rows of failed runs, for other seeds.
        left_out: Number of runs with other settings.
        printed: `nodes` and `edges` of the printed budget, if any.
    """
    reasons: dict[tuple[MarkKind, str], list[int]] = {}
    for run in failures:
        kind: MarkKind = "no data" if run.error_kind == "DataError" else "failed"
        reasons.setdefault((kind, run.error), []).append(run.seed)
    # Failures come before missing data, since they are more informative.
    for (kind, error), seeds in sorted(reasons.items(), key=lambda item: item[0][0]):
        yield Mark(kind, f"{kind}: {error}" + (f" ({named_seeds(seeds)})" if runs else ""))
    yield from _warnings(runs)
    codes = sorted({str(run.code) for run in runs})
    if len(codes) > 1:
        yield Mark("code", f"seeds of {len(codes)} versions of the code: {', '.join(codes)}")
    if left_out:
        word = "run" if left_out == 1 else "runs"
        yield Mark("settings", f"{left_out} {word} of other settings left out")
    budget = (printed.get("nodes", math.nan), printed.get("edges", math.nan))
    attacked = [run for run in runs if run.attack != CLEAN]
    for declared in sorted(
        {
            (run.budget.max_injected_nodes, run.budget.max_edges_per_injected_node)
            for run in attacked
        }
        - {budget}
    ):
        if budget == budget and not math.isnan(sum(budget)):
            text = "budget {} x {}, reported {:.0f} x {:.0f}".format(*declared, *budget)
            yield Mark("budget", text)


def _warnings(runs: Sequence[Any]) -> Iterator[Mark]:
    warned: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        for code, line in coded_warnings(run.record, run.attack):
            warned.setdefault(code, {}).setdefault(line, []).append(run.seed)
    for code, lines in warned.items():
        attack, (line, seeds), *others = runs[0].attack, *lines.items()
        text = named_seeds(seeds)
        if others:
            text += f"; with other numbers {named_seeds([s for _, more in others for s in more])}"
        yield Mark(
            "warning",
            f"{attack}: {line} ({text}); not a bound",
            of_table=f"{attack}: {line}",
            code=f"{attack} {code}",
        )


def stronger_attacks(runs: Sequence[Any], others: pd.DataFrame) -> Iterator[Mark]:
    """Yield marks of a white-box cell if another attack does more harm.

    The other attack had the same trained models and budget. There is at most one mark for white-box
    and one for transferred attacks, for the most harmful attack of each.

    Args:
        runs: Rows of a frame, one per seed; those of clean graphs and black boxes get no marks.
        others: Rows of a frame with other attacks.
    """
    # By name and version, since a mean is over one version of an attack.
    lower: dict[bool, dict[tuple[str, int], dict[int, float]]] = {}
    for run in runs:
        if run.attack == CLEAN or KIND.get(run.threat) not in SEEN:
            continue
        for other in _stronger(run, others):
            transferred = KIND.get(other.threat) not in SEEN and other.attack not in CHANCE
            attack = _attack_name(other), other.version
            lowest = lower.setdefault(transferred, {}).setdefault(attack, {})
            lowest[run.seed] = min(100 * other.accuracy, lowest.get(run.seed, math.inf))
    for transferred, attacks in sorted(lower.items()):
        means = {attack: mean_and_std(by_seed.values())[0] for attack, by_seed in attacks.items()}
        attack = min(means, key=lambda attack: (means[attack], -len(attacks[attack])))
        text = "weaker than transfer: " if transferred else ""
        text += f"{attack[0]} reaches {means[attack]:.2f} % on the same models"
        seeds = named_seeds(sorted(attacks[attack]))
        yield Mark("warning", f"{runs[0].attack}: {text} ({seeds}); not a bound")


def _stronger(run: Any, others: pd.DataFrame) -> Iterator[Any]:
    """Yield each more harmful attack on the same trained model from other runs.

    Attacks of the same run are left out, since the table already shows them.
    """
    # Another version of the code may train another model with the same settings, which is unlikely
    # to have the same clean accuracy.
    same = (others["seed"] == run.seed) & (others["clean"] == run.clean)
    lower = (others["accuracy"] < run.accuracy) & (others["attack"] != CLEAN)
    # Poisoning attacks another model: the one that is trained on the attacked graph.
    candidates = others[same & lower & (others["run"] != run.run) & ~others["retrained"]]
    for other in candidates.itertuples():
        if settings_of(other.record, CLEAN) == settings_of(run.record, CLEAN) and _is_within(
            other, run.budget, injects=_injects(run)
        ):
            yield other


def _attack_name(run: Any) -> str:
    if run.attack in CHANCE or run.threat == "white_box":
        return f"attack={run.attack}"
    if run.threat == "black_box":
        return f"attack={run.attack} crafted on {' or '.join(run.crafted_on)}"
    return f"attack={run.attack} threat={run.threat}"


def _is_within(other: Any, allowed: Budget, *, injects: bool) -> bool:
    """Return whether an attack has the required kind and stayed within a budget."""
    # An attack that injects no node has no feature range.
    spent = other.spent.values()
    written = [used["feature_range"] for used in spent if used["feature_range"] is not None]
    low, high = allowed.limits
    # Only numbers are limits.
    theirs, ours = (
        {key: x for key, x in budget.bounds.items() if isinstance(x, int | float)}
        for budget in (other.budget, allowed)
    )
    return (
        _injects(other) == injects
        and allowed.features in (None, other.budget.features)
        and all(theirs.get(key, math.inf) <= limit for key, limit in ours.items())
        # Older records only report features out of range as text.
        and all(low - EPS <= least and most <= high + EPS for least, most in written)
        and not other.unbounded
        and "budget_overspent" not in other.flags
    )


def _injects(run: Any) -> bool:
    return any(used.get("injected_nodes") for used in run.spent.values())
