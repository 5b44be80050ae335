"""Time that runs will take on this machine, by the records of similar runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robust_diffusion.records.records import Record

Cell = Mapping[str, str]
"""Overrides of a run by key, and its choices by the group and an equals sign."""

CHOICES = ("dataset", "model", "flow", "solver", "threat", "fidelity", "max_epochs")
ALIKE = ("dataset", "model", "flow", "max_epochs")
"""Choices of a run, and those that must agree for its time to be compared."""

IDLE = ("experiment", "logger", "callbacks", "force", "trainer", "threads", "paths", "hydra")
"""Keys that change no result but through others."""

VICTIM = ("model", "flow", "solver", "training", "adversary")
ATTACK = ("attack", "attacks", "budget", "threat", "surrogate")
"""Keys that attacks on surrogates do not depend on; keys that no trained model depends on."""


def estimate(cells: Sequence[Cell], records: Iterable[Record], code: str) -> list[float | None]:
    """Return the seconds of each run, one after the other; `None` where no record is similar.

    The time is the mean of those records of the same dataset, model and flow that differ in fewest
    keys. A recorded run takes none; nor does a model, or attacks on surrogates, that the same code
    has trained or crafted before.

    Args:
        cells: Runs of the sweep.
        records: Records of the same machine.
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
    found: list[float | None] = []
    for cell in cells:
        is_new, trains, attacks = (part not in done for part in _parts(cell))
        done.update(_parts(cell))
        alike = [(_distance(cell, of), of_["seconds"]) for of, of_ in known if _alike(cell, of)]
        least = min((distance for distance, _ in alike), default=0)
        times = [
            seconds.get("test", 0.0)
            + trains * seconds.get("train", 0.0)
            + attacks * sum(of for key, of in seconds.items() if key not in ("train", "test"))
            for distance, seconds in alike
            if distance == least
        ]
        found.append((sum(times) / len(times) if times else None) if is_new else 0.0)
    return found


def features(
    choices: Mapping[str, Any], training: Mapping[str, Any], overrides: Mapping[str, str]
) -> Cell:
    """Return the overrides of a run, and its options by group, `None` where a group is not read."""
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
    """Return the run, its model, and its attacks as far as runs share them, by what each reads."""
    shared = VICTIM if cell.get("threat=") == "black_box" else ()
    return [
        (part, frozenset(of for of in cell.items() if _group(of[0]) not in (*IDLE, *without)))
        for part, without in {"run": (), "victim": ATTACK, "attacks": shared}.items()
    ]


def _group(key: str) -> str:
    """Return the group of a key; an idle one for a choice, since an override repeats it."""
    return IDLE[0] if key.endswith("=") and key != "max_epochs=" else key.partition(".")[0]
