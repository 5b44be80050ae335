from typing import Any

import pytest
from scipy import stats

from robust_diffusion.results.comparison import compare
from tests.paper.records import finished

EXPERIMENT = "readings"


def cells(values: list[tuple[float, float]], **overrides: str) -> list[dict[str, Any]]:
    """Per seed a record with these clean and attacked accuracies, at t_end that tells it apart."""
    own = {"dataset": "cora", **overrides}
    settings = {"flow": {"told": repr(own)}}
    return [
        finished(c, a, experiment=EXPERIMENT, seed=s, overrides=own, settings=settings)
        for s, (c, a) in enumerate(values)
    ]


BASE = cells([(0.70, 0.60), (0.72, 0.61), (0.74, 0.63)], fidelity="paper")
SWITCHED = cells(
    [(0.71, 0.50), (0.74, 0.52), (0.77, 0.51)], fidelity="paper", **{"fidelity.num_steps": "1"}
)


def test_changes_are_paired_by_seed() -> None:
    base, switched = compare(BASE + SWITCHED).to_dict("records")
    assert list(base.values())[:3] == ["(baseline)", "3", "72.00 ± 2.00"]
    assert base["change in clean"] == ""
    assert switched["setting"] == "num_steps=1"
    p = stats.ttest_rel([0.71, 0.74, 0.77], [0.70, 0.72, 0.74]).pvalue
    assert p == pytest.approx(0.0742, abs=1e-3)
    assert switched["change in clean"] == f"+2.00 (p {p:.2g})"


def test_the_nearest_setting_is_departed_from() -> None:
    both = {"fidelity.num_steps": "1", "flow.heads": "2"}
    records = BASE + SWITCHED + cells([(0.5, 0.4)], fidelity="paper", **both)
    *_, last = compare(records).to_dict("records")
    assert last["setting"] == "fidelity.num_steps=1: heads=2"
    assert last["change in clean"] == "−21.00"
    grand = {"fidelity": "paper", "flow": "grand"}  # of the same flow first
    rewiring = {"fidelity.rewiring": "{_target_:some.where.Rewiring,keep_ratio:0.5}"}
    records += cells([(0.8, 0.7)] * 2, **grand) + cells([(0.6, 0.5)] * 2, **grand, **rewiring)
    *_, last = compare(records).to_dict("records")
    assert last["setting"] == "flow=grand: rewiring={keep_ratio:0.5}"
    assert last["change in clean"] == "−20.00"  # equal ones have no spread to be tested by
