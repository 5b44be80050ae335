"""Accuracies under attack that are no bounds because another recorded attack does more harm."""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from robust_diffusion.records.identity import trained_model
from robust_diffusion.records.records import CLEAN, Record
from robust_diffusion.results.captions import spent_ranges
from robust_diffusion.results.entry import Entry, Mark, Run, named_seeds
from robust_diffusion.results.evidence import CHANCE, KIND, SEEN
from robust_diffusion.results.runs import Runs

EPS = 1e-6
"""Rounding of features as 32-bit floats."""


def stronger_attacks(entry: Entry, records: Runs) -> Iterator[Mark]:
    """Yield marks of a white-box entry if another attack does more harm.

    The other attack had the same trained models and budget, and is white-box or transferred: at
    most one mark for each, of the attack that does most.

    Args:
        entry: Measured; clean, black-box and timed ones get no marks.
        records: Runs that hold the other attacks.
    """
    lower: dict[bool, dict[str, dict[int, float]]] = {}
    for run in entry.runs:
        if entry.graph == CLEAN or entry.timed or not _knows(run.record):
            continue
        for other, attack, reached in _stronger(run, entry.graph, records):
            transferred = not _knows(other) and attack not in CHANCE
            lowest = lower.setdefault(transferred, {}).setdefault(_name(other, attack), {})
            lowest[run.seed] = min(reached, lowest.get(run.seed, math.inf))
    for transferred, attacks in sorted(lower.items()):
        means = {name: statistics.fmean(by_seed.values()) for name, by_seed in attacks.items()}
        name = min(means, key=lambda name: (means[name], -len(attacks[name])))
        text = "weaker than transfer: " if transferred else ""
        text += f"{name} reaches {means[name]:.2f} % on the same models"
        seeds = named_seeds(sorted(attacks[name]))
        yield Mark("warning", f"{entry.graph}: {text} ({seeds}); not a bound")


def _stronger(run: Run, graph: str, records: Runs) -> Iterator[tuple[Record, str, float]]:
    """Run, name and accuracy in % of each attack that does more; those of its own run left out.

    Its table already shows those.
    """
    allowed, injects = run.record["budget"]["declared"], _injects(run.record, graph)
    for other in records.by_model.get(trained_model(run.record), ()):
        for attack, accuracy in other["accuracy"].items():
            if attack == CLEAN or other["run"] == run.record["run"]:
                continue
            if other.get("threat") == "poisoning":  # of a model trained on that graph
                continue
            if 100 * accuracy < run.value and _is_within(other, attack, allowed, injects=injects):
                yield other, attack, 100 * accuracy


def _name(record: Record, attack: str) -> str:
    threat = record.get("threat")
    if attack in CHANCE or threat == "white_box":
        return f"attack={attack}"
    if threat == "black_box":
        return f"attack={attack} made on {' or '.join(map(str, record.get('surrogates') or []))}"
    return f"attack={attack} threat={threat}"


def _knows(record: Record) -> bool:
    """Return whether the attacker knows the model; false for a user's threat models."""
    return KIND.get(str(record.get("threat"))) in SEEN


def _is_within(other: Record, attack: str, allowed: Mapping[str, Any], *, injects: bool) -> bool:
    """Return whether an attack is of the same kind as another and kept its budget.

    Args:
        other: The attack's run.
        attack: Its name there.
        allowed: The other one's declared budget.
        injects: The other one injects.
    """
    budget = other["budget"]
    spent = list(budget.get("spent", {}).get(attack, {}).values())
    low, high = allowed["feature_limits"]
    return (
        _injects(other, attack) == injects
        and all(_limit(budget["declared"], key) <= _limit(allowed, key) for key in allowed)
        # Older records report features out of range in words only.
        and all(low - EPS <= used["feature_range"][0] for used in spent)
        and all(used["feature_range"][1] <= high + EPS for used in spent)
        and attack not in budget.get("unbounded", {})
        and "budget_overspent" not in other.get("flags", {}).get(attack, ())
    )


def _injects(record: Record, attack: str) -> bool:
    return "injected_nodes" in spent_ranges([record], [attack])


def _limit(declared: Mapping[str, Any], key: str) -> float:
    """Return a limit of a budget, infinity if there is none."""
    value = declared.get(key)
    return value if isinstance(value, int | float) else math.inf
