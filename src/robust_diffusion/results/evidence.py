"""Evidence from recorded runs: their attacks, by the attacker's knowledge."""

from collections.abc import Iterator, Mapping
from typing import Any

from robust_diffusion.records.record import CLEAN, Record

CHANCE = frozenset(["random", "random_flip"])
"""Random attacks, which do not use the model."""

KIND: Mapping[str, str] = {
    "black_box": "transfer",
    "white_box": "white_box",
    "adaptive": "adaptive",
}
"""Threat model of a run -> column of the accuracy under its attacks."""

SEEN = ["white_box", "adaptive"]
"""Kinds of evidence from attackers who know the model."""

THOROUGH = "auto"
"""The attack that estimates a model's worst case, with knowledge of the model."""

ENSEMBLES = frozenset([THOROUGH, "auto_modification"])
"""Attacks that estimate the worst case, by injection and by modification."""


def knows_model(record: Record) -> bool:
    """Return whether the attacker knows the model; false for custom threat models."""
    return KIND.get(str(record.threat)) in SEEN


def poisons(record: Record) -> bool:
    """Return whether a run tested models that were retrained on its attacked graphs."""
    target = str(record.config.threat.get("_target_"))
    return record.threat == "poisoning" or target.endswith(".Poisoning")


def outcomes_of(recorded: Record) -> dict[str, dict[str, Any]]:
    """Return the columns `accuracy` to `by` of `frame` for each attack of a finished run.

    An attack on a surrogate with the model's weights is white-box.
    """
    outcomes: dict[str, dict[str, Any]] = {}
    for record in _by_knowledge(recorded):
        for attack in record.accuracy.keys() - {CLEAN}:
            both = [_outcome(record, attack), *([outcomes[attack]] if attack in outcomes else [])]
            lowest, *others = sorted(both, key=lambda outcome: (outcome["accuracy"], outcome["by"]))
            outcomes[attack] = {k: v for outcome in (*others, lowest) for k, v in outcome.items()}
    return outcomes


def _by_knowledge(record: Record) -> Iterator[Record]:
    """Yield a run, or a black box in two parts if a surrogate has the model's weights.

    An attack on that surrogate is white-box.
    """
    same = record.same_weights
    if not same:
        yield record
        return
    acc, parts = record.attacked[same[0]], record.parts
    own_parts = {a: parts.get(f"{a}/{same[0]}", parts.get(a, {})) for a in acc}
    yield record.model_copy(update={"threat": "white_box", "accuracy": acc, "parts": own_parts})
    others = [name for name in record.config.threat["surrogates"] if name not in same]
    mean, lower = record.mean_accuracy, record.accuracy
    if len(others) == 1 and mean.keys() >= acc.keys():  # a mean over more cannot be separated
        accuracy = {
            a: lower[a] if lower[a] < acc[a] else max(acc[a], 2 * mean[a] - acc[a]) for a in acc
        }
        yield record.model_copy(update={"accuracy": accuracy, "surrogates": others})


def _outcome(record: Record, attack: str) -> dict[str, Any]:
    """Return an attack's accuracy, also by kind of evidence, and its description."""
    reached = record.accuracy[attack]
    outcome: dict[str, Any] = {"accuracy": reached, "by": attack_in_words(record, attack)}
    if attack in ENSEMBLES:
        outcome["version"] = attack_version(record, attack)
    kind = "chance" if attack in CHANCE else KIND.get(record.threat or "")
    if kind is None or poisons(record):  # `None` for custom threat models
        return outcome
    if kind == "transfer":
        names = ", ".join(sorted(record.surrogates))
        # Include the version of `auto` that attacked them.
        version = f"; {THOROUGH} {attack_version(record, THOROUGH)}"
        outcome["surrogates"] = names + version * bool(names and THOROUGH in record.accuracy)
    for part, lowest in (_parts(record, attack) or {"": reached}).items():
        key = "adaptive" if part.startswith("adaptive") else kind
        outcome[key] = min(lowest, outcome.get(key, 1.0))
    return outcome


def attack_version(record: Record, attack: str) -> int:
    """Return the version of an attack that a record was computed with."""
    return int(record.attack_versions.get(attack, 1))


def _parts(record: Record, attack: str) -> Mapping[str, float]:
    """Return the accuracy that each part of a direct attack reached; empty for other attacks."""
    seen = attack not in CHANCE and knows_model(record)
    parts: Mapping[str, float] = record.parts.get(attack, {}) if seen else {}
    return parts


def attack_in_words(record: Record, attack: str) -> str:
    """Name an attack with its most harmful part, or the threat model of its run."""
    if attack in CHANCE:
        return attack
    parts = _parts(record, attack)
    how = KIND.get(record.threat or "", str(record.threat))
    return f"{attack} ({min(parts, key=parts.__getitem__) if parts else how.replace('_', ' ')})"
