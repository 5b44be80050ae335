import json
from pathlib import Path

import pytest

from robust_diffusion.compare_command import run_compare_command
from robust_diffusion.errors import DataError
from tests.report.records import finished


@pytest.fixture
def records(tmp_path: Path) -> str:
    own = [
        finished(0.7, 0.6, experiment="t-end", overrides={"flow.t_end": t}, cell=t)
        for t in ("0", "1")
    ]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in own))
    return str(path)


def test_each_setting_is_a_row(records: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_compare_command(["t-end", "--records", records, "--format", "csv"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("setting,seeds,clean,change in clean,speit")
    assert [row.split(",")[:3] for row in rows] == [
        ["t_end=0", "1", "70.00"],
        ["t_end=1", "1", "70.00"],
    ]
    run_compare_command(["t-end", "--records", records])
    assert "| t_end=0 |     1 | 70.00 |" in capsys.readouterr().out


def test_an_unknown_experiment_is_one_line(records: str) -> None:
    with pytest.raises(DataError, match=r"nope: no finished cells .* there are t-end; exp"):
        run_compare_command(["nope", "--records", records])


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(DataError, match=r"--records no\.jsonl: not found"):
        run_compare_command(["t-end", "--records", "no.jsonl"])
