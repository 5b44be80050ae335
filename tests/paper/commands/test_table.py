import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands.table import FORMATS, run_table_command
from tests.paper.records import finished, seeds

RECORDS = Path("outputs/records.jsonl")


@pytest.fixture
def records() -> None:
    RECORDS.parent.mkdir()
    made: list[dict[str, Any]] = seeds([0.6, 0.61])
    made += [finished(0.1, fidelity="released"), finished(0.2, scale="smoke")]
    RECORDS.write_text("".join(json.dumps(record) + "\n" for record in made))


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run_table_command(arguments)
    return capsys.readouterr().out


@pytest.mark.usefixtures("records")
def test_a_table_is_what_the_records_say(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "3")
    assert out.startswith("**Table 3 · flows under attack (flows), arXiv:2209.07754.**")
    assert "60.50 ± 0.71" in out
    assert "Entries: 33 not run, 3 measured." in out


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize(
    ("option", "value"), [("--fidelity=released", "10.00"), ("--scale=smoke", "20.00")]
)
def test_other_runs_are_other_tables(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    out = shown(capsys, "3", option)
    assert value in out
    assert "60.50" not in out


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_printed_and_written(
    capsys: pytest.CaptureFixture[str], name: str, tmp_path: Path
) -> None:
    out = shown(capsys, "3", "--format", name)
    start = {"markdown": "**", "latex": "% Needs", "csv": "table,label,", "html": "<figure "}[name]
    assert out.startswith(start)
    path = tmp_path / "deep" / "table"
    assert shown(capsys, "3", "--format", name, "--out", str(path)) == f"{path}\n"
    assert path.read_text(encoding="utf-8") == out


def test_without_records_the_table_says_how_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    RECORDS.unlink(missing_ok=True)
    out = shown(capsys, "5")
    assert "Entries: 21 not run." in out
    assert "experiment=table-5 runs it." in out


@pytest.mark.parametrize("arguments", [[], ["99"], ["three"], ["3", "--format", "nope"]])
def test_what_is_unknown_is_refused_with_what_is_known(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run_table_command(arguments)
    assert stop.value.code == 2
    assert "usage: robust-diffusion table" in capsys.readouterr().err


def test_table_4_is_of_the_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = shown(capsys, "4", "--format=csv", f"--data-dir={tmp_path}").splitlines()
    assert rows[0] == "dataset,statistic,published,measured,equal"
    assert rows[1] == "cora,nodes,2680,no data,-"
    assert len(rows) == 31
    assert shown(capsys, "4").startswith("**Table 4 · datasets (data)")
    with pytest.raises(ConfigError, match="--format html"):
        run_table_command(["4", "--format", "html"])


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "table.md"
    with pytest.raises(ConfigError, match="--out"):
        run_table_command(["15", "--out", str(out)])
