"""What a sweep costs, from records of cells like its own."""

from typing import Any

from robust_diffusion.cells.estimate import Cell, estimate, features

CHOICES = {"dataset": "cora", "model": "graph_pde", "flow": "heat", "threat": "black_box"}
TRAINING = {"max_epochs": 100}


def record(train: float = 10, code: str = "a", **overrides: str) -> dict[str, Any]:
    return {
        **CHOICES,
        **{key: value for key, value in overrides.items() if key in CHOICES},
        "accuracy": {},
        "code": code,
        "config": {"training": TRAINING},
        "overrides": overrides,
        "seconds": {"train": train, "test": 1, "surrogate gcn": 4, "speit": 5},
    }


def cell(**overrides: str) -> Cell:
    return features(CHOICES, TRAINING, overrides)


def test_what_is_recorded_or_shared_is_not_paid_for_again() -> None:
    records = [record(seed="0"), record(train=30, flow="grand", seed="1")]
    assert estimate([cell(seed="0")], records, "a") == (0, 0)  # recorded
    assert estimate([cell(seed="2")], records, "a") == (20, 0)
    assert estimate([cell(seed="2"), cell(seed="2", flow="grand")], records, "a") == (51, 0)
    assert estimate([cell(seed="1")], records, "a") == (11, 0)  # its attacks are there
    assert estimate([cell(seed="1")], records, "b") == (20, 0)  # other code made them
    white = cell(seed="1", threat="white_box")
    assert estimate([white], records, "a") == (20, 0)

    other = [cell(seed="3", dataset="pubmed"), cell(seed="3")]  # of a graph without a record
    assert estimate(other, [*records, {"cell": "failed"}], "a") == (20, 1)
