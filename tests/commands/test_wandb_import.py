"""Runs that are made of records hold what their cells' own runs would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.cells import loggers
from robust_diffusion.records.records import reference_to
from tests.paper.records import failed, finished, timed
from tests.results.wandb_files import Logged

Record = dict[str, Any]
Cli = Callable[..., Any]
CHOICES = ["cora", "graph_pde", "beltrami", "black_box", "paper"]


def asked_by(experiment: str, record: Record) -> Record:
    return reference_to(record) | {"experiment": experiment}


@pytest.fixture
def imports(cli: Cli) -> Callable[..., str]:
    """Imports records by the command, and gives what it says of the runs of cells."""

    def run(lines: list[Record], *options: str, status: int = 0) -> str:
        Path("own.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
        outcome = cli("wandb-import", "own.jsonl", "--store", "store", *options)
        assert outcome.status == status, outcome.err
        said: str = outcome.out.removeprefix("offline in outputs: ")
        return said.strip()

    return run


def files(run: str) -> list[Path]:
    return sorted(Path("outputs").glob(f"**/wandb/offline-run-*/run-{run}.wandb"))


@pytest.mark.slow
def test_records_are_read_back(imports: Callable[..., str]) -> None:
    record = finished(0.71, 0.33, cell="5bd1", flags={"speit": ["no_effect"]})
    record |= {"seconds": {"train": 2.5, "speit": 0.25}, "epochs": 321}
    step = timed(0.004) | {"cell": "c311"}
    lines = [record, asked_by("worst-case", record), asked_by("table-1", record), step]
    assert imports(lines).startswith("2 runs made, 0 passed over, 0 failed; ")

    run = Logged(*files("5bd1"))
    assert run.about["tags"] == [*CHOICES, "table-3", "worst-case", "table-1"]
    assert (run.about["run_group"], run.about["job_type"]) == ("table-3", "cell")
    config = run.run["config"]
    # The file does not hold what is empty.
    assert config.pop("record") == {k: v for k, v in record.items() if k != "config" and v != {}}
    assert {key: config[key] for key in record["config"]} == record["config"]
    summary = run.run["summary"]
    for graph, accuracy in record["accuracy"].items():
        assert summary[f"accuracy/{graph}"] == pytest.approx(accuracy)
    assert summary["flags/speit"] == ["no_effect"]
    assert (summary["seconds/train"], summary["epochs"]) == (2.5, 321)
    assert summary["spent/tdgia/injected_edges"] == 2500
    assert Logged(*files("c311")).run["summary"]["seconds/diffusion"] == 0.004
    (table,) = Path("outputs").rglob("*table-3-paper-full*/**/*.table.json")
    assert '"71.0' in table.read_text()


@pytest.mark.slow
def test_a_second_import_makes_the_changed_runs_alone(imports: Callable[..., str]) -> None:
    Path("store").mkdir()
    Path("store", "model-1.safetensors").write_bytes(b"weights")
    Path("secret").write_bytes(b"not ours")
    names = {"victim": "model-1.safetensors", "speit": "graph-1", "tdgia": "../secret"}
    lines = [finished(cell="a", files=names), finished(cell="b")]
    one = ["--experiment", "table-3"]
    assert imports(lines, "--limit", "1", *one) == (
        "1 run made, 0 passed over, 0 failed; 1 table made, 0 passed over, 0 failed"
    )
    found = [e["artifact"] for e in Logged(*files("a")).entries if "artifact" in e]
    assert [(artifact["name"], artifact["type"]) for artifact in found] == [("a-victim", "model")]
    lines.append(finished(cell="c", experiment="mlp"))
    assert imports(lines, *one).startswith("1 run made, 1 passed over")
    Path("store", "graph-1").write_bytes(b"edges")
    assert imports(lines, *one).startswith("1 run made, 1 passed over")
    assert [len(files(run)) for run in "abc"] == [2, 1, 0]


def test_cells_without_a_result_are_passed_over_and_others_go_on_after_a_failure(
    imports: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Run:
        offline = True

    def make(record: Record, *_: Any, **__: Any) -> Run:
        if record["cell"] == "interrupted":
            raise KeyboardInterrupt
        if record["cell"] == "no/id":
            raise ValueError("no id\nmore")
        return Run()

    monkeypatch.setattr(loggers, "log_finished", make)
    monkeypatch.setattr(loggers, "log_table", lambda *_, **__: Run())
    lines = [failed("no data") | {"cell": "f"}, finished(cell="no/id"), finished(cell="a")]
    assert imports(lines, status=1).startswith("1 run made, 1 passed over, 1 failed; 1 table")
    assert "no/id: no id" in caplog.text
    lines.insert(0, finished(cell="interrupted"))
    assert imports(lines, status=130).endswith("0 tables made, 0 passed over, 0 failed")


def test_a_bad_option_is_named(
    imports: Callable[..., str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [finished(cell="a")]
    for options in (["--experiment", "nope"], ["--limit", "-1"]):
        imports(lines, *options, status=1)
    assert cli("wandb-import", "nowhere.jsonl").error.startswith("error: nowhere.jsonl: not found")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    imports(lines, status=1)


@pytest.mark.slow
def test_a_cell_that_is_asked_for_again_gets_a_tag(cli: Cli, tiny_clean: list[str]) -> None:
    (record,) = cli("flow=heat", "logger=none", *tiny_clean).records
    outcome = cli("experiment=demo", "flow=heat", "logger=wandb", *tiny_clean)
    assert [line.get("reference", False) for line in outcome.records] == [False, True]
    (path,) = files(record["cell"])
    assert path.parents[2].name == "from-records"
    found = Logged(path)
    assert found.about["tags"][-1] == "demo"
    assert found.run["config"]["record"]["time"] == record["time"]
    assert found.run["summary"]["accuracy/clean"] == pytest.approx(record["accuracy"]["clean"])
