"""Runs that are made of records hold what their cells' own runs would."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.records import reference_to
from robust_diffusion.results.wandb_import import WandbImport
from tests.paper.records import finished, timed
from tests.results.wandb_files import Logged

Record = dict[str, Any]
CHOICES = ["cora", "graph_pde", "beltrami", "black_box", "paper"]


def importer(tmp_path: Path, records: list[Record], **options: Any) -> WandbImport:
    places = {"directory": tmp_path / "outputs", "store": tmp_path / "store"}
    return WandbImport(records, project="p", mode="offline", **places, **options)


def imported(tmp_path: Path, records: list[Record], **options: Any) -> list[str]:
    """The outcome of each cell."""
    made = importer(tmp_path, records, **options)
    return [made.import_cell(record) for record in made.cells()]


def files(tmp_path: Path, run: str) -> list[Path]:
    return sorted(tmp_path.glob(f"outputs/**/wandb/offline-run-*/run-{run}.wandb"))


def asked_by(experiment: str, record: Record) -> Record:
    return reference_to(record) | {"experiment": experiment}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_drawn_records_are_read_back(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    flags = {"speit": draw.sample(["no_effect", "budget_unspent"], 1)}
    seconds = {"train": draw.random(), "speit": draw.random()}
    record = finished(
        draw.random(), draw.random(), cell=f"{draw.getrandbits(64):016x}", flags=flags
    ) | {"seconds": seconds, "epochs": draw.randrange(5000)}
    step = timed(draw.random()) | {"cell": "c311"}
    lines = [record, asked_by("worst-case", record), asked_by("table-1", record), step]
    assert imported(tmp_path, lines) == ["made", "made"]

    (path,) = files(tmp_path, record["cell"])
    run = Logged(path)
    assert run.about["tags"] == [*CHOICES, "table-3", "worst-case", "table-1"]
    assert (run.about["run_group"], run.about["job_type"]) == ("table-3", "cell")
    config = run.run["config"]
    # The file does not hold what is empty.
    assert config.pop("record") == {k: v for k, v in record.items() if k != "config" and v != {}}
    assert {key: config[key] for key in record["config"]} == record["config"]
    summary = run.run["summary"]
    for graph, accuracy in record["accuracy"].items():
        assert summary[f"accuracy/{graph}"] == pytest.approx(accuracy)
    assert summary["flags/speit"] == flags["speit"]
    assert summary["seconds/train"] == pytest.approx(seconds["train"])
    assert summary["epochs"] == record["epochs"]
    assert summary["spent/tdgia/injected_edges"] == 2500

    (path,) = files(tmp_path, "c311")
    summary = Logged(path).run["summary"]
    assert summary["seconds/diffusion"] == pytest.approx(step["seconds"]["diffusion"])


@pytest.mark.slow
def test_a_second_import_makes_what_has_changed_under_the_same_ids(tmp_path: Path) -> None:
    lines = [finished(cell="a"), finished(cell="b")]
    assert imported(tmp_path, lines) == ["made", "made"]
    assert imported(tmp_path, lines) == ["passed over", "passed over"]
    lines.append(asked_by("worst-case", lines[0]))
    assert imported(tmp_path, lines) == ["made", "passed over"]
    assert imported(tmp_path, lines, again=True) == ["made", "made"]
    assert [len(files(tmp_path, run)) for run in "ab"] == [3, 2]
    assert len(files(tmp_path, "*")) == 5


def test_cells_without_a_result_are_passed_over_and_others_go_on_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        {"cell": "f", "experiment": "table-3", "error": "no data"},
        {"cell": "gone", "experiment": "table-3", "reference": True},
        finished(cell="no/id"),
        finished(cell="a"),
    ]
    assert imported(tmp_path, lines) == ["passed over", "failed", "made"]
    assert "no/id: " in caplog.text
    assert len(files(tmp_path, "*")) == 1


def test_an_experiment_has_the_cells_that_it_asked_for(tmp_path: Path) -> None:
    lines = [finished(cell="a"), finished(cell="b"), finished(cell="c", experiment="mlp")]
    made = importer(tmp_path, [*lines, asked_by("mlp", lines[1])])
    assert [record["cell"] for record in made.cells(["mlp"])] == ["b", "c"]
    assert [record["cell"] for record in made.cells()] == ["a", "b", "c"]


@pytest.mark.slow
def test_files_are_added_as_far_as_they_are_in_the_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "model-1.safetensors").write_bytes(b"weights")
    (tmp_path / "secret").write_bytes(b"not ours")
    names = {"victim": "model-1.safetensors", "speit": "graph-1", "tdgia": "../secret"}
    imported(tmp_path, [finished(cell="a", files=names)])
    found = [e["artifact"] for e in Logged(*files(tmp_path, "a")).entries if "artifact" in e]
    assert [(artifact["name"], artifact["type"]) for artifact in found] == [("a-victim", "model")]
    assert imported(tmp_path, [finished(cell="a", files=names)]) == ["passed over"]
    (store / "graph-1").write_bytes(b"edges")
    assert imported(tmp_path, [finished(cell="a", files=names)]) == ["made"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "runs"),
    [
        ("table-3", ["table-3-paper-full", "table-3-released-full"]),
        ("mlp", ["mlp-full"]),
        ("../own", ["failed"]),
    ],
)
def test_tables_are_those_that_an_experiment_ends_with(
    tmp_path: Path, experiment: str, runs: list[str]
) -> None:
    lines = [
        finished(cell=f, fidelity=f, experiment=experiment, overrides={"fidelity": f})
        for f in ("paper", "released")
    ]
    outcomes = list(importer(tmp_path, lines).import_tables(experiment))
    if runs == ["failed"]:
        assert outcomes == runs
        return
    assert outcomes == ["made"] * len(runs)
    for run in runs:
        (path,) = files(tmp_path, run)
        found = Logged(path)
        assert (found.about["run_group"], found.about["job_type"]) == (experiment, "table")
        (table,) = path.parent.rglob("*.table.json")
        assert '"75.0' in table.read_text()
    assert set(importer(tmp_path, lines).import_tables(experiment)) == {"passed over"}


def test_nothing_is_imported_where_wandb_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with pytest.raises(ConfigError, match=r"WANDB_MODE=disabled: .* unset it"):
        WandbImport([], project="p", directory=tmp_path, store=tmp_path)


@pytest.mark.slow
def test_a_cell_that_is_asked_for_again_gets_a_tag(
    cli: Callable[..., Any], tiny_clean: list[str], tmp_path: Path
) -> None:
    (record,) = cli("flow=heat", "logger=none", *tiny_clean).records
    outcome = cli("experiment=demo", "flow=heat", "logger=wandb", *tiny_clean)
    assert [line.get("reference", False) for line in outcome.records] == [False, True]
    (path,) = files(tmp_path, record["cell"])
    assert path.parents[2].name == "from-records"
    found = Logged(path)
    assert found.about["tags"][-1] == "demo"
    assert found.run["config"]["record"]["time"] == record["time"]
    training = {key: own for key, own in record["config"]["training"].items() if own != {}}
    assert json.loads(json.dumps(found.run["config"]["training"])) == training
    assert found.run["summary"]["accuracy/clean"] == pytest.approx(record["accuracy"]["clean"])
