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


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """Of the one claim that was judged, in each column that it has."""
    (claim,) = found["claims"]
    return {name: column["verdict"] for name, column in claim["columns"].items() if column}


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


def test_another_file_of_claims_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(
        "alpha: 0.01\nmin_seeds: 2\nelsewhere: {}\nclaims:\n  mine:\n    quote: w\n    place: p\n"
        "    select: {experiment: table-6, attack: speit, layers: 2}\n"
        "    left: {model: beltrami}\n    right: {model: beltrami_no_lipschitz}\n"
    )
    write(layers(9))
    found = judged(capsys, "--claims", "mine.yaml")
    assert (found["alpha"], found["min_seeds"]) == (0.01, 2)
    assert verdicts(found)["paper"] == "supported"
