import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.paper.commands import run_claims_command
from robust_diffusion.records import append_record
from tests.paper.claims.synthetic import records_of, with_moments

RECORDS = Path("outputs/records.jsonl")
CLAIM = "lipschitz-helps"


def write(records: Iterable[dict[str, Any]], path: Path = RECORDS) -> None:
    for record in records:
        append_record(path, record)


def layers(gain: float, **more: Any) -> list[dict[str, Any]]:
    """Table 6 with a known effect of the Lipschitz constraint."""
    return [
        record
        for number in range(1, 5)
        for model, mean in (("beltrami", 57 + gain), ("beltrami_no_lipschitz", 57))
        for record in records_of(
            "table-6",
            {"dataset": "cora", "model": model, "layers": number},
            {"clean": [80.0] * 5, "speit": with_moments(mean, 1.5, 5, seed=number)},
            **more,
        )
    ]


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    run_claims_command([*arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("gain", "verdict"), [(4, "supported"), (-4, "contradicted")])
def test_verdicts_come_from_records(
    capsys: pytest.CaptureFixture[str], gain: float, verdict: str
) -> None:
    write(layers(gain))
    (claim,) = judged(capsys, CLAIM)["claims"]
    paper = claim["columns"]["paper"]
    assert paper["verdict"] == verdict
    estimate = paper["shown"]["estimate"]
    assert (estimate["effect"], estimate["seeds"]) == (pytest.approx(gain), 5)
    low, high = estimate["interval"]
    assert low <= estimate["effect"] <= high
    assert [one["state"] for one in paper["findings"]]
    assert claim["columns"]["published"]["verdict"] == "supported"
