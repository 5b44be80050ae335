"""Evidence of a recorded cell: each of its attacks, by who made it, knowing what."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from robust_diffusion.evaluation.records import Record
from robust_diffusion.results.cells import CLEAN

Evidence = str
"""Kind of evidence: a column of worst cases; of a transferred attack with its surrogates, as in
`transfer from gcn`."""

CHANCE = frozenset(["random", "random_flip"])
"""Attacks that look at no model."""

KIND: Mapping[str, Evidence] = {
    "black_box": "transfer",
    "white_box": "white_box",
    "adaptive": "adaptive",
}
"""Threat model of a cell -> column of the accuracy under its attacks."""

SEEN: tuple[Evidence, ...] = ("white_box", "adaptive")
"""Kinds of evidence of an attacker who knows the model."""

THOROUGH = "auto"
"""The attack by which a model's worst case is told, by an attacker who knows it."""

BEFORE = f"{THOROUGH} without 4 edges per target"
"""An earlier version of it, as its parts tell."""


class Outcome(NamedTuple):
    """One attack on one model."""

    reached: float  # accuracy, in 0..1
    name: str
    words: str  # the attack with its part or threat model
    kinds: Mapping[Evidence, float]  # of an attack in parts, the lowest of each
    flags: Collection[str]


def outcomes_of(recorded: Record) -> Iterator[Outcome]:
    """Each attack of a cell; one on a surrogate that is the victim itself is white-box."""
    for record in _without_twins(recorded):
        for attack, reached in record["accuracy"].items():
            if attack != CLEAN:
                words, kinds = attack_in_words(record, attack), _evidence(record, attack, reached)
                flags = record.get("flags", {}).get(attack, [])
                yield Outcome(reached, attack, words, kinds, flags)


def _without_twins(record: Record) -> Iterator[Record]:
    """The record; of a black box with a surrogate that has the victim's weights, what it is worth.

    Under `seeding=cell`, as before there was a choice, a surrogate is trained from the cell's seed,
    and so is the victim itself where their configurations agree: an attack on it is white-box.
    """
    config, attacked = record.get("config", {}), record.get("attacked", {})
    threat = config.get("threat") or {}
    given = threat.get("surrogates") if record.get("threat") == "black_box" else {}
    surrogates: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    twins = [
        name
        for name, of in surrogates.items()
        # Their trainings may differ in length, and then hardly end alike.
        if of == config.get("model")
        and attacked.get(name, {}).get(CLEAN) == record["accuracy"][CLEAN]
    ]
    if not twins or threat.get("seeding", "cell") != "cell":
        yield record
        return
    own, parts = attacked[twins[0]], record.get("parts", {})
    of_twin = {a: parts.get(f"{a}/{twins[0]}", parts.get(a, {})) for a in own}
    yield record | {"threat": "white_box", "accuracy": own, "parts": of_twin}
    others = [name for name in surrogates if name not in twins]
    both, lower = record.get("mean_accuracy", {}), record["accuracy"]
    if len(others) == 1 and both.keys() >= own.keys():  # a mean of more does not tell them apart
        accuracy = {
            a: lower[a] if lower[a] < own[a] else max(own[a], 2 * both[a] - own[a]) for a in own
        }
        yield record | {"accuracy": accuracy, "surrogates": others}


def _evidence(record: Record, attack: str, reached: float) -> dict[Evidence, float]:
    """Accuracy by kind of evidence; of an attack in parts on the model itself, of each part."""
    kind = _kind(record, attack)
    if kind is None:  # a threat model of the user's
        return {}
    found: dict[Evidence, float] = {}
    for part, lowest in (_parts(record, attack) or {"": reached}).items():
        of = "adaptive" if part.startswith("adaptive") else kind
        found[of] = min(lowest, found.get(of, 1.0))
    return found


def _kind(record: Record, attack: str) -> Evidence | None:
    if attack in CHANCE:
        return "chance"
    kind = KIND.get(record.get("threat", ""))
    if kind != "transfer" or not record.get("surrogates"):
        return kind
    parts = [
        part
        for name, of in record.get("parts", {}).items()
        if name.split("/")[0] == THOROUGH
        for part in of
    ]
    version = f"; {BEFORE}" if parts and not any("4 edges" in part for part in parts) else ""
    return f"transfer from {', '.join(sorted(record['surrogates']))}{version}"


def _parts(record: Record, attack: str) -> Mapping[str, float]:
    """Accuracy that each part of an attack on the model itself reached; none of other attacks."""
    seen = _kind(record, attack) in SEEN
    parts: Mapping[str, float] = record.get("parts", {}).get(attack, {}) if seen else {}
    return parts


def attack_in_words(record: Record, attack: str) -> str:
    """An attack with its most harmful part, or the threat model of its cell."""
    if attack in CHANCE:
        return attack
    parts = _parts(record, attack)
    how = KIND.get(record.get("threat", ""), str(record.get("threat")))
    return f"{attack} ({min(parts, key=parts.__getitem__) if parts else how.replace('_', ' ')})"
