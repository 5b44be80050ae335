"""Records of attacks on one model, as an experiment on worst cases leaves them."""

from typing import Any

from robust_diffusion.records.record import Record
from tests.paper.records import finished

NEW = 6
OLD = {"attack_versions": {"auto": 4}}
"""Of a record whose `auto` was an earlier one."""


def record(
    model: str,
    threat: str = "white_box",
    seed: int = 0,
    flow: str | None = None,
    budget: tuple[int, int] = (50, 50),
    **accuracy: float,
) -> Record:
    """Return a run of these attacks; `clean` is 0.8 by default."""
    own: dict[str, Any] = {"model": model, "flow": flow, "threat": threat, "seed": seed}
    run = f"{own}-{budget}-{sorted(accuracy)}"
    clean = accuracy.pop("clean", 0.8)
    own |= {"experiment": "worst-case", "attack_versions": {"auto": NEW}, "budget": budget}
    return finished(clean, accuracy, run=run, split="grb", surrogates=[], **own)


def trained_for(run: Record, max_epochs: int) -> Record:
    """Return the record of a model with another setting."""
    config = run.config.whole | {"training": {"max_epochs": max_epochs}}
    return run | {"run": f"{run.run}-{max_epochs}", "config": config}


def with_words(run: Record) -> Record:
    """Return the same run with another form of injected features."""
    budget = run.budget.bounds | {"features": "binary", "max_words": 20}
    return run | {"run": f"words of {run.run}", "budget": budget}
