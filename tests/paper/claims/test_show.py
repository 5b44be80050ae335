import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robust_diffusion.paper.claims.claim import Claim, Claims
from robust_diffusion.paper.claims.judge import Judgement, judge, recorded_evidence
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
NOISE = [0.3, -0.4, 0.2, 0.1, -0.2]


def flow(name: str, values: list[float], **more: Any) -> list[dict[str, Any]]:
    axes = {"model": name, "dataset": "cora"}
    overrides = {"fidelity": "paper"} | ({"flow": name} if name != "beltrami" else {})
    graphs = {"clean": values, "speit": [value - 20 for value in values]}
    return records_of("table-3", axes, graphs, overrides=overrides, **more)


def judged(claim: Claim = CLAIM, **means: float) -> Judgement:
    records = [
        record
        for i, (name, mean) in enumerate(means.items())
        for record in flow(name, [mean + (e if i else 0.0) for e in NOISE])
    ]
    return judge(claim, recorded_evidence(records, fidelity="paper"), RULES)


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


def test_a_cell_holds_verdict_comparisons_and_weakest_effect() -> None:
    found = judged(beltrami=60, grand=40, heat=63)
    verdict, count, effect = in_short(CLAIM, found)
    assert (verdict, count) == ("contradicted", "1 of 2 hold, 1 contradicted")
    assert effect.startswith("weakest \N{MINUS SIGN}3.0 [\N{MINUS SIGN}3.")
    few = in_short(CLAIM, judged(beltrami=60, grand=40))
    assert few[:2] == ["undecided", "1 of 2 hold, 1 too few seeds"]
    assert in_short(CLAIM, judged()) == ["no data"]
    assert in_short(CLAIM, None) == ["-"]
    with_mlp = replace(found, mlp=judged(beltrami=60, grand=65, heat=40))
    assert in_short(CLAIM, with_mlp)[-1] == "MLP: 1 of 2 hold, 1 contradicted"
    average = replace(CLAIM, over="average")
    *_, effect = in_short(average, judged(average, beltrami=60, grand=40, heat=50))
    assert effect.startswith("mean +15.0 [")
