import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands import FORMATS, run_table_command
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


def test_table_4_is_of_the_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = shown(capsys, "4", "--format=csv", f"--data-dir={tmp_path}").splitlines()
    assert rows[0] == "dataset,statistic,published,measured,equal"
    assert rows[1] == "cora,nodes,2680,no data,-"
    assert len(rows) == 31
    assert shown(capsys, "4", f"--data-dir={tmp_path}").startswith("**Table 4 · datasets (data)")
    with pytest.raises(ConfigError, match="--format html"):
        run_table_command(["4", "--format", "html"])
