"""Records of worst cases as published."""

from dataclasses import asdict
from typing import Any

from robust_diffusion import open_dataset
from robust_diffusion.records.records import Record
from robust_diffusion.robustness.zoo import Zoo
from tests.zoo import BUDGET

DECLARED = {"declared": asdict(BUDGET)}


def record(model: str, threat: str = "white_box", seed: int = 0, **changes: Any) -> Record:
    """A cell of a worst case on the drawn graph."""
    accuracy = {"clean": 0.8, "auto": 0.5}
    return {
        "cell": f"{model}-{threat}-{seed}",
        "experiment": "worst-case",
        "dataset": "synthetic",
        "fidelity": "paper",
        "model": model,
        "flow": None,
        "threat": threat,
        "seed": seed,
        "split": "grb",
        "budget": DECLARED,
        "val_accuracy": 0.8,
        "accuracy": accuracy,
    } | changes


def records_of(zoo: Zoo, worst: float) -> list[Record]:
    """The zoo's model with its worst case as published, and an MLP."""
    (entry,) = zoo.entries
    split = open_dataset("synthetic").split_hash
    accuracy = {"clean": entry.clean_accuracy, "auto": worst}
    own = record("gcn", cell=entry.cell, split=split, accuracy=accuracy)
    return [own, record("mlp", split=split, accuracy={"clean": 0.4, "auto": 0.4})]
