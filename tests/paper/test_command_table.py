from pathlib import Path

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands import run_table_command
from robust_diffusion.records import append_record
from tests.paper.records import finished


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run_table_command(arguments)
    return capsys.readouterr().out


def test_table_4_is_of_the_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = shown(capsys, "4", "--format=csv", f"--data-dir={tmp_path}").splitlines()
    assert rows[0] == "dataset,statistic,published,measured,equal"
    assert rows[1] == "cora,nodes,2680,no data,-"
    assert len(rows) == 31
    assert shown(capsys, "4", f"--data-dir={tmp_path}").startswith("**Table 4 · datasets (data)")
    with pytest.raises(ConfigError, match="--format html"):
        run_table_command(["4", "--format", "html"])


def test_a_table_without_runs_shows_the_published_ones(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (row, *_) = [line for line in shown(capsys, "3").splitlines() if "| here" in line]
    assert "±" in row
    assert "published" in caplog.text


def test_a_table_leaves_out_datasets_without_runs(capsys: pytest.CaptureFixture[str]) -> None:
    append_record("outputs/records.jsonl", finished(experiment="table-3"))
    table = shown(capsys, "3")
    assert "Not run: citeseer, pubmed." in table
    assert not any("Pubmed" in line for line in table.splitlines() if line.startswith("|"))
