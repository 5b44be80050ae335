"""What a sweep costs, from records of cells like its own."""

from typing import Any

import pytest

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


def test_the_likest_records_count_and_none_of_another_graph_or_model() -> None:
    small = {"model.hidden_channels": "8"}
    records = [record(seed="0"), record(train=2, seed="0", **small), {"cell": "failed"}]
    assert estimate([cell(seed="3", **small)], records, "a")[0] == pytest.approx(12)
    assert estimate([cell(seed="3", dataset="pubmed"), cell(seed="3")], records, "a") == (20, 1)
    assert estimate([cell(seed="3", flow="grand")], records, "a") == (0, 1)
    assert estimate([cell(seed="3")], [], "a") == (0, 1)
