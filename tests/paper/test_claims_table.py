import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from robust_diffusion.paper.claims import Claim, Claims, in_short, judge, recorded_evidence
from robust_diffusion.results.numbers import p_value
from tests.paper.claims_records import records_of

RULES = Claims(alpha=0.05, min_seeds=3, claims={}, elsewhere={})
SELECT = {"experiment": "table-3", "attack": "speit", "dataset": "cora"}
CLAIM = Claim(
    quote="a is better",
    place="tab:flows",
    select=SELECT,
    left={"model": "beltrami"},
    right={"model": "grand"},
)


def flow(name: str, values: list[float], **more: Any) -> list[dict[str, Any]]:
    axes = {"model": name, "dataset": "cora"}
    overrides = {"fidelity": "paper"} | ({"flow": name} if name != "beltrami" else {})
    graphs = {"clean": values, "speit": [value - 20 for value in values]}
    return records_of("table-3", axes, graphs, overrides=overrides, **more)


@pytest.mark.parametrize("seed", range(3))
def test_p_and_interval_are_those_of_a_paired_test(seed: int) -> None:
    own, other = np.random.default_rng(seed).normal([[70], [68]], 1.5, (2, 5))
    records = [*flow("beltrami", list(own)), *flow("grand", list(other))]
    judgement = judge(CLAIM, recorded_evidence(records, fidelity="paper"), RULES)
    verdict, count, effect = in_short(CLAIM, judgement).split("\n")
    p = re.search(r"p (.*)$", effect)
    assert p
    expected = stats.ttest_rel(own, other)
    assert p.group(1) == p_value(expected.pvalue)
    low, high = (float(end) for end in re.findall(r"[\d.]+", effect)[1:3])
    assert (low, high) == pytest.approx(np.abs(expected.confidence_interval(0.95)), abs=0.051)
    assert (verdict == "supported") == (expected.pvalue <= RULES.alpha) == ("1 of 1" in count)
