import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.compare import run_compare_command
from robust_diffusion.errors import DataError
from tests.paper.records import finished


def write(path: Path, own: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in own))
    return str(path)


@pytest.fixture
def records(tmp_path: Path) -> str:
    options = {"experiment": "t-end"}
    own = [finished(0.7, 0.6, overrides={"flow.t_end": t}, cell=t, **options) for t in ("0", "1")]
    return write(tmp_path / "records.jsonl", own)


def test_each_setting_is_a_row(records: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_compare_command(["t-end", "--records", records, "--format", "csv"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "setting,seeds,clean,speit,tdgia"
    assert [row.rsplit(",", 2)[0] for row in rows] == ["t_end=0,1,70.00", "t_end=1,1,70.00"]
    run_compare_command(["t-end", "--records", records])
    assert "| t_end=0 |     1 | 70.00 |" in capsys.readouterr().out


def test_settings_are_compared_on_validation_nodes_where_that_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [
        finished(experiment="tune-check", overrides=o, cell=repr(o), val_accuracy=v)
        for o, v in (({}, 0.7), ({"flow.heads": "2"}, 0.75))
    ]
    path = write(tmp_path / "records.jsonl", own)
    options = ["--records", path, "--on", "validation", "--format", "csv"]
    run_compare_command(["tune-check", *options])
    assert capsys.readouterr().out.splitlines() == [
        "setting,seeds,validation,change in validation",
        "(baseline),1,70.00,",
        "heads=2,1,75.00,+5.00",
    ]


def test_worst_cases_of_two_models_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "experiment": "worst-case",
        "threat": "white_box",
        "attacks": ("auto",),
        "split": "a",
    }
    own = [
        finished(0.8, accuracy, seed=seed, flow=flow, **options)
        for flow, accuracy in (("beltrami", 0.2), ("uniform_modulation", 0.1))
        for seed in (0, 1)
    ]
    path = write(tmp_path / "records.jsonl", own)
    asked = ["worst-case", "--records", path, "--models", "beltrami", "uniform_modulation"]
    run_compare_command(asked)
    title, *_, worst = capsys.readouterr().out.strip().splitlines()
    assert title.startswith("cora: beltrami beside uniform_modulation, accuracy in % within 50 n")
    assert [cell.strip() for cell in worst.split("|")[1:3]] == ["worst", "2"]
    run_compare_command([*asked, "--format", "csv"])
    assert capsys.readouterr().out.startswith("accuracy,seeds,beltrami,uniform_modulation,diff")
    with pytest.raises(DataError, match=r"worst-case: no finished cells of both grand and heat in"):
        run_compare_command([*asked[:-2], "grand", "heat"])


def test_an_unknown_experiment_is_one_line(records: str) -> None:
    with pytest.raises(DataError, match=r"nope: no finished cells .* there are t-end; exp"):
        run_compare_command(["nope", "--records", records])


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(DataError, match=r"--records no\.jsonl: not found"):
        run_compare_command(["t-end", "--records", "no.jsonl"])
