import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.wandb_import import run_wandb_import_command
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.results.wandb_import import WandbImport
from tests.paper.records import finished


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "own.jsonl"
    lines = [finished(cell=cell) for cell in "abc"] + [finished(cell="d", experiment="mlp")]
    path.write_text("".join(json.dumps(record) + "\n" for record in lines))
    return str(path)


@pytest.mark.slow
def test_an_import_that_is_cut_short_goes_on(
    records: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_wandb_import_command([records, "--experiment", "table-3", "--limit", "2"])
    run_wandb_import_command([records, "--experiment", "table-3"])
    assert capsys.readouterr().out.splitlines() == [
        "offline in outputs: 2 runs made, 0 passed over, 0 failed; "
        "1 table made, 0 passed over, 0 failed",
        "offline in outputs: 1 run made, 2 passed over, 0 failed; "
        "0 tables made, 1 passed over, 0 failed",
    ]


@pytest.mark.slow
def test_wandb_itself_says_nothing(records: str) -> None:
    command = [sys.executable, "-m", "robust_diffusion.run", "wandb-import", records]
    hidden = ("WANDB_SILENT", "WANDB_MODE", "WANDB_API_KEY")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        command,
        env=environment | {"HOME": str(Path.cwd()), "NETRC": "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.startswith("offline in outputs: 4 runs made")
    assert ended.stderr == ""


def test_an_interrupt_says_what_was_done(
    cli: Callable[..., Any], records: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter(["made", "failed"])

    def import_cell(*_: Any) -> str:
        for outcome in outcomes:
            return outcome
        raise KeyboardInterrupt

    monkeypatch.setattr(WandbImport, "import_cell", import_cell)
    outcome = cli("wandb-import", records)
    assert outcome.status == 130
    assert "1 run made, 0 passed over, 1 failed; 0 tables" in outcome.out
    assert outcome.err == "interrupted: the same command goes on from here\n"


def test_a_failure_is_the_exit_status(
    cli: Callable[..., Any], records: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WandbImport, "import_cell", lambda *_: "failed")
    monkeypatch.setattr(WandbImport, "import_tables", lambda *_: iter(()))
    assert cli("wandb-import", records).status == 1


def test_what_is_not_there_is_named(records: str) -> None:
    with pytest.raises(DataError, match=r"--experiment nope: .* use table-3, mlp"):
        run_wandb_import_command([records, "--experiment", "nope"])
    with pytest.raises(DataError, match=r"^nowhere.jsonl: not found"):
        run_wandb_import_command(["nowhere.jsonl"])
    with pytest.raises(ConfigError, match=r"--limit -1: below 0"):
        run_wandb_import_command([records, "--limit", "-1"])
