import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robust_diffusion.paper.claims.claim import Claim, Claims
from robust_diffusion.paper.claims.judge import judge, recorded_evidence
from robust_diffusion.paper.claims.show import (
    in_short,
)
from robust_diffusion.results.comparison import compare
from robust_diffusion.results.paired import compare_worst_cases
from tests.paper.claims.synthetic import records_of

RULES = Claims(alpha=0.05, min_seeds=3, claims={}, elsewhere={}, front={"better": "A is better"})
SELECT = {"experiment": "table-3", "attack": "speit", "dataset": "cora"}
CLAIM = Claim(
    "a is better",
    "tab:flows",
    select=SELECT,
    left={"model": "beltrami"},
    each={"right.model": ["grand", "heat"]},
)


def flow(name: str, values: list[float], **more: Any) -> list[dict[str, Any]]:
    axes = {"model": name, "dataset": "cora"}
    overrides = {"fidelity": "paper"} | ({"flow": name} if name != "beltrami" else {})
    graphs = {"clean": values, "speit": [value - 20 for value in values]}
    return records_of("table-3", axes, graphs, overrides=overrides, **more)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_means_have_the_same_p_and_interval_everywhere(seed: int) -> None:
    own, other = np.random.default_rng(seed).normal([[70], [68]], 1.5, (2, 5))
    records = [*flow("beltrami", list(own)), *flow("grand", list(other))]
    claim = replace(CLAIM, each={"right.model": ["grand"]})
    verdict, count, effect = in_short(
        claim, judge(claim, recorded_evidence(records, fidelity="paper"), RULES)
    )
    p = re.search(r"p (.*)$", effect)
    assert p
    # Departing from the other side turns the sign alone.
    change = compare(records, "table-3").to_dict("records")[1]["change in speit"]
    assert re.search(r"\(p ([^*]*)\*?\)", change).group(1) == p.group(1)  # type: ignore[union-attr]
    attacked = [r | {"threat": "white_box", "split": "one", "surrogate": None} for r in records]
    for record in attacked:
        record["accuracy"] = {"clean": 0.9, "auto": record["accuracy"]["speit"]}
    worst = compare_worst_cases(attacked, "beltrami", "grand").cells.set_index("accuracy")
    assert worst.loc["worst", "p"].rstrip("*") == p.group(1)
    low, high = (float(end) for end in re.findall(r"[\d.]+", effect)[1:3])
    ends = [float(end) for end in re.findall(r"[\d.]+", worst.loc["worst", "95 % interval"])]
    assert (low, high) == pytest.approx(ends, abs=0.051)
    assert (verdict == "supported") is worst.loc["worst", "p"].endswith("*") is ("1 of 1" in count)
