from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from robust_diffusion.attacks import Budget
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import compare
from tests.evaluation.test_report import CONTROL, REPORT


def test_compare_differences() -> None:
    better = [replace(CONTROL, accuracy=0.8, flags=[]), replace(CONTROL, name="auto", accuracy=0.5)]
    other = replace(REPORT, model="MLP", clean_accuracy=0.9, attacks=better)
    frame = compare([REPORT, other]).set_index("attack")
    assert list(frame.index) == ["clean", "random", "pgd/GCN 2", "auto", "worst"]
    assert list(frame.columns) == ["GCN", "MLP", "MLP - GCN", "flags"]
    assert frame.loc[["clean", "random", "worst"], "MLP - GCN"].tolist() == pytest.approx(
        [0.1, 0.05, 0.25]
    )
    assert frame.loc[["pgd/GCN 2", "auto"], "MLP - GCN"].isna().all()
    assert frame.loc["pgd/GCN 2", "flags"] == frame.loc["worst", "flags"] == "GCN: budget_unspent"


def test_compare_pairs_by_seed() -> None:
    seeds = [0.75, 0.7, 0.6], [0.8, 0.78, 0.64]
    reports = [
        replace(REPORT, attacks=[replace(CONTROL, accuracy=of[0], by_seed=of)]) for of in seeds
    ]
    frame = compare({"a": reports[0], "b": reports[1]}).set_index("attack")
    gains = np.subtract(*seeds[::-1])
    low, high = stats.ttest_1samp(gains, 0).confidence_interval()
    row = frame.loc["random", ["b - a", "b - a, low", "b - a, high"]]
    assert row.tolist() == pytest.approx([gains.mean(), low, high])
    assert frame.loc["worst", ["b - a, low", "b - a, high"]].isna().all()


def test_compare_names_models_of_one_class_apart() -> None:
    assert {"GCN", "GCN 2", "GCN 3", "GCN 3 - GCN"} <= {*compare([REPORT] * 3)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("clean_graph", "other"), ("num_targets", 3), ("threat", "adaptive")),
        *(("seed", 5), ("budget", Budget(1, 3))),
    ],
)
def test_compare_refuses_different_settings(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^reports: b and a differ in {key}; [^\n]*$"):
        compare({"a": REPORT, "b": replace(REPORT, **{key: value})})


def test_compare_refuses_one_report() -> None:
    with pytest.raises(ConfigError, match=r"^reports: expected at least 2, got 1"):
        compare([REPORT])
