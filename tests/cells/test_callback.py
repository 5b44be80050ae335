from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.cells.callback import PrintResults, callback_of
from robust_diffusion.records import append_record
from tests.paper.records import finished

Records = list[dict[str, Any]]
RECORDS = Path("outputs/records.jsonl")


def config() -> DictConfig:
    return OmegaConf.create(
        {
            "paths": {"records": str(RECORDS)},
            "hydra": {"run": {"dir": "outputs/run/1"}, "sweep": {"dir": "outputs/multirun/1"}},
        }
    )


def add(directory: str, *, flow: str = "heat", job: int = 0, **changes: Any) -> None:
    record = {
        "cell": repr((directory, flow, changes)),
        "experiment": "none",
        "val_accuracy": 0.5,
        "dataset": "toy",
        "difficulty": "easy",
        "model": "graph_pde",
        "flow": flow,
        "fidelity": "paper",
        "threat": "black_box",
        "seed": 0,
        "budget": {"declared": {"max_injected_nodes": 3, "max_edges_per_injected_node": 2}},
        "overrides": {"flow": flow},
        "directory": directory,
        "job": job,
    }
    append_record(RECORDS, record | (changes or {"accuracy": {"clean": 0.5, "speit": 0.25}}))


def test_a_failed_cell_of_a_sweep_ends_in_status_1_after_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    add("multirun/1/0", flow="heat", job=0)
    add("multirun/1/1", flow="grand", job=1, error="seed=-1: must be at least 0")
    with pytest.raises(SystemExit, match="1"):
        PrintResults().on_multirun_end(config())
    assert "failed" in capsys.readouterr().out


def test_records_that_no_table_can_be_made_of_end_in_status_1_and_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    add("multirun/1/0", cell="c0ffee", accuracy={"clean": None})
    for show in (PrintResults().on_run_end, PrintResults().on_multirun_end):
        caplog.clear()
        with pytest.raises(SystemExit, match="1"):
            show(config())
        (line,) = caplog.messages
        assert line.startswith("no table: outputs/records.jsonl: the record of cell c0ffee: ")


@pytest.mark.parametrize(
    ("experiment", "tags", "column"),
    [
        ("table-3", [["paper", "full"], ["released", "full"]], "printed_mean"),
        ("tune", [["full"]], "validation"),
        ("mlp", [["full"]], "clean"),
        ("../mine", [["full"]], "clean"),
    ],
)
def test_the_tables_of_an_experiment_are_those_that_its_sweep_prints(
    experiment: str, tags: list[list[str]], column: str
) -> None:
    records = [
        finished(fidelity=fidelity, experiment=experiment) for fidelity in ("paper", "released")
    ]
    found = list(callback_of(experiment).tables(experiment, records, "full"))
    assert [own for _, own in found] == tags
    assert all(column in frame.columns for frame, _ in found)
    assert list(callback_of(experiment).tables(experiment, records, "smoke")) == []
