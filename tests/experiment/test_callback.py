from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.experiment.callback import PrintResults
from robust_diffusion.paper.tables import load_layout, table_numbers
from tests.paper.records import failed, finished, saved

RECORDS = Path("outputs/records")
SWEEP = {"sweep": "multirun-1"}


def config() -> DictConfig:
    return OmegaConf.create(
        {
            "paths": {"records": str(RECORDS)},
            "hydra": {
                "runtime": {"choices": {}},
                "run": {"dir": "outputs/run/1"},
                "sweep": {"dir": "outputs/multirun/1"},
            },
        }
    )


def test_a_failed_cell_ends_a_sweep_in_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    saved(finished(job=0), failed(flow="grand", job=1), **SWEEP)
    with pytest.raises(SystemExit, match="1"):
        PrintResults().on_multirun_end(config())
    assert "failed" in capsys.readouterr().out


def test_a_sweep_ends_in_each_table_that_its_experiment_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for job in (0, 1):
        overrides = {"flow.heads": "2"} if job else {}
        own = {"settings": {"flow": {"heads": job}}, "overrides": overrides, "job": job}
        saved(finished(0.7 + job / 10, **own), **SWEEP)
    PrintResults(["test", "changes"]).on_multirun_end(config())
    printed = capsys.readouterr().out
    assert "accuracy in %" in printed
    assert "change in clean" in printed
    assert "+10.00" in printed


def test_the_end_of_a_command_reads_its_own_runs_alone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    saved(finished(job=0, seed=1), sweep="another")
    saved(finished(job=0), **SWEEP)
    for path in RECORDS.glob("*.json"):
        if '"seed": 1,' in path.read_text():
            path.write_text("{")  # would be warned of
    PrintResults().on_multirun_end(config())
    assert "75.00" in capsys.readouterr().out
    assert not caplog.text


def test_the_next_command_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    cfg = config()
    cfg.paths.records = path = "my out/records"
    saved(finished(job=0), folder=path, **SWEEP)
    cfg.hydra.sweep.dir = "my out/multirun/1"
    PrintResults().on_multirun_end(cfg)
    assert f"--records '{path}'" in capsys.readouterr().out


@pytest.mark.parametrize("number", [n for n in table_numbers() if not load_layout(n).swept])
def test_a_table_of_no_runs_is_printed_all_the_same(cli: Callable[..., Any], number: int) -> None:
    (row, *_) = cli(f"experiment=table-{number}", "logger=none").table
    assert row["Dataset"] == "Cora"
