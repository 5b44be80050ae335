"""Time that a sweep will take on this machine, by the records of runs like its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robust_diffusion.records.records import Record

Cell = Mapping[str, str]
"""Overrides of a run by key, and its choices by the group and an equals sign."""

CHOICES = ("dataset", "model", "flow", "solver", "threat", "fidelity", "max_epochs")
ALIKE = ("dataset", "model", "flow", "max_epochs")
"""Choices of a run, and those of them without which one tells nothing of another."""

IDLE = ("experiment", "logger", "callbacks", "force", "trainer", "threads", "paths", "hydra")
"""Keys that change no result but through others."""

VICTIM = ("model", "flow", "solver", "training", "adversary")
ATTACK = ("attack", "attacks", "budget", "threat", "surrogate")
"""Keys that attacks on surrogates do not depend on; keys that no victim depends on."""


def estimate(cells: Sequence[Cell], records: Iterable[Record], code: str) -> tuple[float, int]:
    """Seconds that some runs take one after the other, and how many of them no record is like.

    The time of a run is the mean of those records of its dataset, model and flow from which it
    differs in fewest keys. What is recorded or comes twice takes none: a run, and with the same
    code a victim, or attacks on surrogates.

    Args:
        cells: Those of the sweep.
        records: Those of the same machine.
        code: Hash of the code that will run.
    """
    known = [
        (features(record, record["config"]["training"], record.get("overrides", {})), record)
        for record in records
        if "accuracy" in record and record.get("seconds") and "training" in record.get("config", {})
    ]
    done = {
        part
        for of, record in known
        for part in _parts(of)[: None if record.get("code") == code else 1]
    }
    total, unlike = 0.0, 0
    for cell in cells:
        is_new, trains, attacks = (part not in done for part in _parts(cell))
        done.update(_parts(cell))
        if not is_new:
            continue
        alike = [
            (_distance(cell, of), record["seconds"]) for of, record in known if _alike(cell, of)
        ]
        least = min((distance for distance, _ in alike), default=0)
        nearest = [seconds for distance, seconds in alike if distance == least]
        unlike += not nearest
        for seconds in nearest:
            left = dict(seconds)
            train, test = left.pop("train", 0.0), left.pop("test", 0.0)
            total += (test + trains * train + attacks * sum(left.values())) / len(nearest)
    return total, unlike


def features(
    choices: Mapping[str, Any], training: Mapping[str, Any], overrides: Mapping[str, str]
) -> Cell:
    """Choices and overrides that tell a run from others.

    Args:
        choices: Options by their groups, among others; `None` of a group that is not read.
        training: Options of the training.
        overrides: Values by their keys, which go before those.
    """
    chosen = {"max_epochs": training["max_epochs"], **choices}
    values = {key: overrides.get(key, chosen.get(key)) for key in CHOICES}
    return {**{f"{key}=": str(of) for key, of in values.items() if of is not None}, **overrides}


def _alike(cell: Cell, other: Cell) -> bool:
    # A record of a model that has no flow names none.
    return all(other.get(f"{key}=", of) == of for key in ALIKE if (of := cell.get(f"{key}=")))


def _distance(one: Cell, other: Cell) -> int:
    keys = (one.keys() | other.keys()) - {"seed", *IDLE}
    return sum(one.get(key) != other.get(key) for key in keys)


def _parts(cell: Cell) -> list[tuple[str, frozenset[tuple[str, str]]]]:
    """The run, its victim, and its attacks as far as others share them, each by what it reads."""
    shared = VICTIM if cell.get("threat=") == "black_box" else ()
    return [
        (part, frozenset(of for of in cell.items() if _group(of[0]) not in (*IDLE, *without)))
        for part, without in {"run": (), "victim": ATTACK, "attacks": shared}.items()
    ]


def _group(key: str) -> str:
    """The group of a key; none that counts of a choice, since an override repeats it."""
    return IDLE[0] if key.endswith("=") and key != "max_epochs=" else key.partition(".")[0]
