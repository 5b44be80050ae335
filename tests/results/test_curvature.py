"""Curvature of recorded networks, brought together."""

from typing import Any

import pytest

from robust_diffusion.results.curvature import curvature_table


def record(victim: str, quantile: float, same: float, flow: str = "beltrami") -> dict[str, Any]:
    layers = {
        f"layers.{i}.flow": {"50%": quantile / 2, "90%": quantile * (1 + i)} for i in range(2)
    }
    return {
        "cell": f"{victim}-{flow}-{quantile}",
        "dataset": "cora",
        "fidelity": "paper",
        "model": "graph_pde",
        "flow": flow,
        "files": {"victim": victim},
        "seed": 0,
        "accuracy": {"clean": 0.8},
        "curvature": {"layers": layers, "same_predictions": same},
    }


RECORDS = [record("a", 0.1, 1.0), record("b", 0.3, 0.9)]


def test_quantiles_are_means_over_networks() -> None:
    frame = curvature_table(RECORDS).set_index("layer")
    assert frame.loc["1", "networks"] == 2
    assert frame.loc["1", "90%"] == pytest.approx(0.2)
    assert frame.loc["last", "90%"] == pytest.approx(0.4)
    assert frame.loc["last", "largest 90%"] == pytest.approx(0.6)
    assert frame.loc["1", "same_predictions"] == pytest.approx(95)


def test_network_of_several_cells_counts_once() -> None:
    again = RECORDS[0] | {"cell": "another", "files": {"victim": "of other code"}}
    assert curvature_table([*RECORDS, again]).equals(curvature_table(RECORDS))
