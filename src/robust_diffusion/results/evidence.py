"""Evidence of a recorded cell: each of its attacks, by who made it, knowing what."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from robust_diffusion.records.records import Record
from robust_diffusion.results.cells import CLEAN
from robust_diffusion.robustness.flag_codes import OF_THE_GRAPH, OF_THE_NUMBER

CHANCE = frozenset(["random", "random_flip"])
"""Attacks that look at no model."""

KIND: Mapping[str, str] = {
    "black_box": "transfer",
    "white_box": "white_box",
    "adaptive": "adaptive",
}
"""Threat model of a cell -> column of the accuracy under its attacks."""

SEEN = ["white_box", "adaptive"]
"""Kinds of evidence of an attacker who knows the model."""

THOROUGH = "auto"
"""The attack by which a model's worst case is told, by an attacker who knows it."""

ENSEMBLES = frozenset([THOROUGH, "auto_modification"])
"""The same of injections and of modifications."""

OF_ANY_MODEL = OF_THE_NUMBER | OF_THE_GRAPH
"""Flags of a transferred graph that do not depend on the surrogate."""

ON_SURROGATES = ("weaker than chance", "changes no prediction")
"""Beginnings of warnings measured on a surrogate, in records older than flags."""


def outcomes_of(recorded: Record) -> dict[str, dict[str, Any]]:
    """The columns of `frame` from `accuracy` to `by`, of each attack of a finished cell.

    An attack on a surrogate that is the victim itself is white-box.
    """
    found: dict[str, dict[str, Any]] = {}
    for record in _without_twins(recorded):
        for attack in record["accuracy"].keys() - {CLEAN}:
            both = [_outcome(record, attack), *([found[attack]] if attack in found else [])]
            lowest, *others = sorted(both, key=lambda outcome: (outcome["accuracy"], outcome["by"]))
            found[attack] = {k: v for of in (*others, lowest) for k, v in of.items()}
    return found


def _without_twins(record: Record) -> Iterator[Record]:
    """The record; of a black box with a surrogate that has the victim's weights, what it is worth.

    Under `seeding=cell`, as before there was a choice, a surrogate is trained from the cell's seed,
    and so is the victim itself where their configurations agree: an attack on it is white-box.
    """
    twins = _twins(record)
    if not twins:
        yield record
        return
    own, parts = record["attacked"][twins[0]], record.get("parts", {})
    of_twin = {a: parts.get(f"{a}/{twins[0]}", parts.get(a, {})) for a in own}
    yield record | {"threat": "white_box", "accuracy": own, "parts": of_twin}
    others = [name for name in record["config"]["threat"]["surrogates"] if name not in twins]
    both, lower = record.get("mean_accuracy", {}), record["accuracy"]
    if len(others) == 1 and both.keys() >= own.keys():  # a mean of more does not tell them apart
        accuracy = {
            a: lower[a] if lower[a] < own[a] else max(own[a], 2 * both[a] - own[a]) for a in own
        }
        yield record | {"accuracy": accuracy, "surrogates": others}


def _twins(record: Record) -> list[str]:
    """Surrogates of a black box that have the victim's weights."""
    config, attacked = record.get("config", {}), record.get("attacked", {})
    threat = config.get("threat") or {}
    given = threat.get("surrogates") if record.get("threat") == "black_box" else {}
    surrogates: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if threat.get("seeding", "cell") != "cell":
        return []
    return [
        name
        for name, of in surrogates.items()
        # Their trainings may differ in length, and then hardly end alike.
        if of == config.get("model")
        and attacked.get(name, {}).get(CLEAN) == record["accuracy"][CLEAN]
    ]


def told_of_model(record: Record, key: Literal["flags", "warnings"]) -> dict[str, list[str]]:
    """Flags or warnings by test graph, without those that were measured on a surrogate.

    A black box without `surrogate_flags` was recorded when they still stood among the model's.
    """
    told: dict[str, list[str]] = record.get(key, {})
    if record.get("threat") != "black_box" or "surrogate_flags" in record or _twins(record):
        return told
    codes = {graph: of for graph, of in record.get("flags", {}).items() if graph in told}
    lines = {graph: zip(codes.get(graph, of), of, strict=False) for graph, of in told.items()}
    kept = {
        graph: [
            item
            for code, item in of
            if graph == "victim"
            or code in OF_ANY_MODEL
            or not (graph in codes or code.startswith(ON_SURROGATES))
        ]
        for graph, of in lines.items()
    }
    return {graph: of for graph, of in kept.items() if of}


def _outcome(record: Record, attack: str) -> dict[str, Any]:
    """An attack's accuracy, the same by kind of evidence, and the attack in words."""
    reached = record["accuracy"][attack]
    outcome = {"accuracy": reached, "by": attack_in_words(record, attack)}
    if attack in ENSEMBLES:
        outcome["version"] = attack_version(record, attack)
    kind = "chance" if attack in CHANCE else KIND.get(record.get("threat", ""))
    if kind is None or record.get("threat") == "poisoning":  # or a threat model of the user's
        return outcome
    if kind == "transfer":
        outcome["surrogates"] = _surrogates(record)
    for part, lowest in (_parts(record, attack) or {"": reached}).items():
        of = "adaptive" if part.startswith("adaptive") else kind
        outcome[of] = min(lowest, outcome.get(of, 1.0))
    return outcome


def attack_version(record: Record, attack: str) -> int:
    """Return the version of an attack that a record was computed with."""
    return int(record.get("attack_versions", {}).get(attack, 1))


def _surrogates(record: Record) -> str:
    """Return the surrogates of a black box, with the version of `auto` that attacked them."""
    names = ", ".join(sorted(record.get("surrogates") or []))
    attacked = names and THOROUGH in record["accuracy"]
    return f"{names}; {THOROUGH} {attack_version(record, THOROUGH)}" if attacked else names


def _parts(record: Record, attack: str) -> Mapping[str, float]:
    """Accuracy that each part of an attack on the model itself reached; none of other attacks."""
    seen = attack not in CHANCE and KIND.get(record.get("threat", "")) in SEEN
    parts: Mapping[str, float] = record.get("parts", {}).get(attack, {}) if seen else {}
    return parts


def attack_in_words(record: Record, attack: str) -> str:
    """An attack with its most harmful part, or the threat model of its cell."""
    if attack in CHANCE:
        return attack
    parts = _parts(record, attack)
    how = KIND.get(record.get("threat", ""), str(record.get("threat")))
    return f"{attack} ({min(parts, key=parts.__getitem__) if parts else how.replace('_', ' ')})"
