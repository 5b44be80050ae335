import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation import append_record
from robust_diffusion.paper.claims import load_claims
from robust_diffusion.paper.commands.claims import run_claims_command
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
            {"speit": with_moments(mean, 1.5, 5, seed=number)},
            **more,
        )
    ]


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    run_claims_command([*arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("gain", "verdict"), [(4, "supported"), (-4, "not supported")])
def test_verdicts_come_from_records(
    capsys: pytest.CaptureFixture[str], gain: float, verdict: str
) -> None:
    write(layers(gain))
    (claim,) = judged(capsys, CLAIM)["fidelity"]["paper"]
    assert claim["verdict"] == verdict
    assert claim["effect"]["value"] == pytest.approx(gain)
    assert claim["printed"]["verdict"] == "supported"
    assert claim["seeds"] == [5, 5]


def test_without_records_no_claim_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    found = judged(capsys)
    assert [c["claim"] for c in found["fidelity"]["paper"]] == list(load_claims().claims)
    assert {c["verdict"] for c in found["fidelity"]["paper"]} == {"not enough data"}
    assert not list(Path().iterdir())


def test_smoke_runs_never_count(capsys: pytest.CaptureFixture[str]) -> None:
    write(layers(4, scale="smoke"))
    (claim,) = judged(capsys, CLAIM)["fidelity"]["paper"]
    assert claim["verdict"] == "not enough data"


def test_readings_are_judged_apart(capsys: pytest.CaptureFixture[str]) -> None:
    write([*layers(4), *layers(-4, fidelity="released")])
    found = judged(capsys, CLAIM)["fidelity"]
    assert {name: claims[0]["verdict"] for name, claims in found.items()} == {
        "paper": "supported",
        "released": "not supported",
    }
    assert list(judged(capsys, CLAIM, "--fidelity", "released")["fidelity"]) == ["released"]


def test_several_files_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    records = layers(4)
    write(records[:20], Path("a.jsonl"))
    write(records[20:], Path("b.jsonl"))
    one = judged(capsys, CLAIM, "--records", "a.jsonl")["fidelity"]["paper"][0]
    both = judged(capsys, CLAIM, "--records", "a.jsonl", "--records", "b.jsonl")
    assert one["verdict"] == "not enough data"
    assert both["fidelity"]["paper"][0]["verdict"] == "supported"


def test_the_table_is_markdown_with_the_papers_words(capsys: pytest.CaptureFixture[str]) -> None:
    write(layers(4))
    run_claims_command([CLAIM, "few-layers-underfit"])
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(
        "Claims of arXiv:2209.07754 by records, fidelity=paper: 1 supported, 0 not supported, "
        "1 not enough data"
    )
    (row,) = [line for line in out.splitlines() if line.startswith(f"| {CLAIM}")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == load_claims().claims[CLAIM].quote
    assert cells[2:4] == ["supported", "supported"]
    assert cells[4].startswith("+4.00 [+")
    assert cells[-1] == "tab:lips"
    assert "Not decided by records:" in out


def test_an_unknown_claim_is_named() -> None:
    with pytest.raises(ConfigError, match="claim=nope: unknown; use one of"):
        run_claims_command(["nope"])


def test_records_that_are_named_have_to_be_there() -> None:
    with pytest.raises(DataError, match=r"--records none\.jsonl: not found"):
        run_claims_command(["--records", "none.jsonl"])


def test_another_file_of_claims_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(
        "alpha: 0.01\nmin_seeds: 2\nelsewhere: {}\nclaims:\n  mine:\n    quote: w\n    place: p\n"
        "    test: greater\n    select: {experiment: table-6, attack: speit, layers: 2}\n"
        "    left: {model: beltrami}\n    right: {model: beltrami_no_lipschitz}\n"
    )
    write(layers(9))
    found = judged(capsys, "--claims", "mine.yaml")
    assert (found["alpha"], found["min_seeds"]) == (0.01, 2)
    assert found["fidelity"]["paper"][0]["verdict"] == "supported"


def test_an_unknown_reading_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run_claims_command(["--fidelity", "nope"])
    assert stop.value.code == 2
    assert "usage: robust-diffusion claims" in capsys.readouterr().err
