import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands import dashboard as dashboard_command
from robust_diffusion.paper.commands.dashboard import run_dashboard_command


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    run_dashboard_command([*arguments, "--dry-run"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_a_dry_run_prints_the_dashboard_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    (dashboard,) = printed(capsys, "--table", "3")
    assert dashboard["name"] == "Table 3: flows (paper)"
    panels = [panel for section in dashboard["sections"] for panel in section["panels"]]
    bar = {"kind": "bar", "title": "Accuracy, SPEIT", "y": "summary:accuracy/speit", "x": None}
    assert bar in panels


def test_without_a_table_there_is_one_of_each_and_one_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [d["name"] for d in printed(capsys, "--scale", "smoke", "--fidelity", "released")]
    assert names[0] == "All cells (released, smoke run)"
    assert "Table 14: pLap (released, smoke run)" in names
    assert not any("Table 15" in name for name in names)


def test_a_file_holds_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "dashboard.json"
    run_dashboard_command(["--table", "3", "--json", str(path)])
    assert capsys.readouterr().out == f"{path}\n"
    assert json.loads(path.read_text()) == printed(capsys, "--table", "3")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--json .*x\.json: cannot be written \("):
        run_dashboard_command(["--json", str(tmp_path / "file" / "x.json")])


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_command, "find_spec", lambda name: None)
    remedy = r"needs wandb-workspaces; pip install 'robust-diffusion\[dashboards\]'"
    with pytest.raises(ConfigError, match=remedy):
        run_dashboard_command(["--table", "3"])


def test_offline_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"WANDB_MODE=offline: .* unset it, or add --dry-run"):
        run_dashboard_command(["--table", "3"])
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr(dashboard_command, "has_key", lambda: False)
    with pytest.raises(ConfigError, match=r"no W&B key; run `wandb login`, or add --dry-run"):
        run_dashboard_command(["--table", "3"])


def test_a_table_without_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--table 15: shows the configuration"):
        run_dashboard_command(["--table", "15", "--dry-run"])


@pytest.mark.parametrize("arguments", [["--table", "99"], ["--dry-run", "--json", "x"]])
def test_what_makes_no_sense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        run_dashboard_command(arguments)
