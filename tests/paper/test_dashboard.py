"""W&B dashboards, and the requests that reach a local server in W&B's place."""

import json

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper import commands
from robust_diffusion.paper.commands import run_dashboard_command
from robust_diffusion.paper.layout import load_layout, table_numbers

NUMBERS = [number for number in table_numbers() if load_layout(number).kind != "budgets"]


def test_a_dry_run_shows_the_dashboards(capsys: pytest.CaptureFixture[str]) -> None:
    run_dashboard_command(["--scale", "smoke", "--fidelity", "released", "--dry-run"])
    dashboards = json.loads(capsys.readouterr().out)
    names = [dashboard["name"] for dashboard in dashboards]
    assert names[0] == "All cells (released, smoke run)"
    assert "Table 14: pLap (released, smoke run)" in names
    assert len(names) == 1 + len(NUMBERS)


def test_without_package_connection_or_runs_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="--table 15"):
        run_dashboard_command(["--table", "15", "--dry-run"])
    with pytest.raises(ConfigError, match="WANDB_MODE"):
        run_dashboard_command(["--table", "3"])
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        run_dashboard_command(["--table", "3"])
