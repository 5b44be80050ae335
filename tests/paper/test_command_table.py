from pathlib import Path

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands import run_table_command


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
