"""How long a sweep will take on this machine, by the records of cells like its own."""

from collections.abc import Iterable, Mapping, Sequence

from robust_diffusion.records.records import Record

Cell = Mapping[str, str]
"""Choices and overrides of a cell, by key."""

CHOICES = ("dataset", "model", "flow", "solver", "experiment", "threat", "fidelity", "scale")

IDLE = ("experiment", "logger", "callbacks", "force", "trainer", "threads", "paths", "hydra")
"""Keys that change no result."""

VICTIM = ("model", "flow", "solver", "training", "adversary")
ATTACK = ("attack", "attacks", "budget", "threat", "surrogate")
"""Keys that attacks on surrogates do not depend on; keys that no victim depends on."""


def estimate(cells: Sequence[Cell], records: Iterable[Record], code: str) -> tuple[float, int]:
    """Seconds that some cells take one after the other, and how many of them no record is like.

    The time of a cell is the mean of those records of its dataset, model and flow from which it
    differs in fewest keys. What is recorded or comes twice takes none: a cell, and with the same
    code a victim, or attacks on surrogates.

    Args:
        cells: Choices and overrides of each.
        records: Those of the same machine.
        code: Hash of the code that will run.
    """
    known = [(features, record) for record in records if (features := features_of(record))]
    done = {
        part
        for of, record in known
        for part in _parts(of)[: None if record.get("code") == code else 1]
    }
    total, unlike = 0.0, 0
    for cell in cells:
        whole, victim, attacks = (part not in done for part in _parts(cell))
        done.update(_parts(cell))
        if not whole:
            continue
        alike = [
            (_distance(cell, of), record["seconds"])
            for of, record in known
            if all(of.get(key) == cell.get(key) for key in ("dataset", "scale", "model", "flow"))
        ]
        least = min((distance for distance, _ in alike), default=0)
        nearest = [seconds for distance, seconds in alike if distance == least]
        unlike += not nearest
        for seconds in nearest:
            left = dict(seconds)
            train, test = left.pop("train", 0.0), left.pop("test", 0.0)
            spent = test + victim * train + attacks * sum(left.values())
            total += spent / len(nearest)
    return total, unlike


def features_of(record: Record) -> Cell:
    """Choices and overrides of a finished cell; none of a line that tells no time of one."""
    if "accuracy" not in record or not isinstance(record.get("seconds"), dict):
        return {}
    overrides: Cell = record.get("overrides", {})
    return {**{key: str(record.get(key)) for key in CHOICES}, **overrides}


def _parts(cell: Cell) -> tuple[frozenset[tuple[str, str]], ...]:
    """What tells the cell from others, its victim, and its attacks, as far as these are shared."""
    on_surrogates = cell.get("threat") == "black_box"
    return tuple(
        frozenset(
            [("part", part), *((k, v) for k, v in cell.items() if k.split(".")[0] not in without)]
        )
        for part, without in {
            "cell": IDLE,
            "victim": (*IDLE, *ATTACK),
            "attacks": (*IDLE, *VICTIM) if on_surrogates else IDLE,
        }.items()
    )


def _distance(one: Cell, other: Cell) -> int:
    keys = (one.keys() | other.keys()) - {"seed", *IDLE}
    return sum(one.get(key) != other.get(key) for key in keys)
