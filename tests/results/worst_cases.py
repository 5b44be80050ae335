"""Records of worst cases on the drawn graph."""

from dataclasses import asdict
from typing import Any

from robust_diffusion.records.records import Record
from tests.zoo import BUDGET


def record(model: str, threat: str = "white_box", seed: int = 0, **changes: Any) -> Record:
    """A run under `auto`."""
    return {
        "run": f"{model}-{threat}-{seed}",
        "experiment": "worst-case",
        "dataset": "synthetic",
        "fidelity": "paper",
        "model": model,
        "flow": None,
        "threat": threat,
        "seed": seed,
        "split": "grb",
        "budget": {"declared": asdict(BUDGET)},
        "val_accuracy": 0.8,
        "accuracy": {"clean": 0.8, "auto": 0.5},
    } | changes
