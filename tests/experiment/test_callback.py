from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.errors import DataError, EscapedError
from robust_diffusion.experiment.callback import PrintResults
from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.records import append_record
from tests.paper.records import failed, finished

Records = list[dict[str, Any]]
RECORDS = Path("outputs/records.jsonl")


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
    append_record(RECORDS, finished(directory="multirun/1/0", job=0))
    append_record(RECORDS, failed(flow="grand", directory="multirun/1/1", job=1))
    with pytest.raises(SystemExit, match="1"):
        PrintResults().on_multirun_end(config())
    assert "failed" in capsys.readouterr().out


def test_a_sweep_ends_in_each_table_that_its_experiment_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for job, overrides in enumerate(({}, {"flow.heads": "2"})):
        own = {"directory": f"multirun/1/{job}", "job": job, "run": str(job)}
        append_record(RECORDS, finished(0.7 + job / 10, overrides=overrides, **own))
    PrintResults(["test", "changes"]).on_multirun_end(config())
    printed = capsys.readouterr().out
    assert "accuracy in %" in printed
    assert "change in clean" in printed
    assert "+10.00" in printed


def test_the_next_command_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    cfg = config()
    cfg.paths.records = path = "my out/records.jsonl"
    append_record(path, finished(directory="multirun/1/0", job=0))
    cfg.hydra.sweep.dir = "my out/multirun/1"
    PrintResults().on_multirun_end(cfg)
    assert f"--records '{path}'" in capsys.readouterr().out


def test_records_of_no_table_reach_the_command_line() -> None:
    append_record(RECORDS, finished(directory="multirun/1/0", accuracy={"clean": None}))
    for show in (PrintResults().on_run_end, PrintResults().on_multirun_end):
        with pytest.raises(EscapedError) as escaped:
            show(config())
        assert isinstance(escaped.value.__cause__, DataError)


@pytest.mark.parametrize("number", [n for n in table_numbers() if not load_layout(n).swept])
def test_a_table_of_no_runs_is_printed_all_the_same(cli: Callable[..., Any], number: int) -> None:
    (row, *_) = cli(f"experiment=table-{number}", "logger=none").table
    assert row["Dataset"] == "Cora"
