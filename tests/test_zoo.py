"""The zoo is made of records and their store, and checked against them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from robust_diffusion import load_model
from robust_diffusion.records.records import Record
from robust_diffusion.robustness.zoo import Zoo
from tests.test_experiments import script
from tests.zoo import BUDGET


@pytest.fixture
def records(zoo_folder: Path) -> list[Record]:
    """A cell of a worst case, and one of a lower seed, whose files are gone."""
    (entry,) = Zoo.open(zoo_folder).entries
    record = {
        "cell": "gcn-0",
        "experiment": "worst-case",
        "dataset": "synthetic",
        "fidelity": "paper",
        "model": "gcn",
        "flow": None,
        "threat": "white_box",
        "seed": 1,
        "split": "grb",
        "budget": {"declared": asdict(BUDGET)},
        "accuracy": {"clean": entry.clean_accuracy, "auto": entry.worst_accuracy},
        "files": {"victim": entry.file, "auto": entry.graph},
        "config": {"model": entry.config, "data": {}},
    }
    gone = {name: f"graph-{name}.safetensors" for name in ("victim", "auto")}
    return [record, record | {"cell": "of seed 0", "seed": 0, "files": gone}]


def test_a_zoo_is_made_and_checked(
    records: list[Record], zoo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, zoo = script("make_zoo"), tmp_path / "zoo"
    module.write_zoo(list(module.zoo_of(records, zoo_folder)), zoo)
    assert "gcn on synthetic, paper, seed 0: not in" in capsys.readouterr().err
    (entry,) = Zoo.open(zoo).entries
    (cell, worst) = (records[0], min(records[0]["accuracy"].values()))
    assert (entry.cell, entry.seed, entry.worst_accuracy) == (cell["cell"], 1, worst)
    assert {path.name for path in zoo.iterdir()} == {entry.file, entry.graph, "index.json"}
    assert load_model("gcn", "synthetic", directory=zoo) is not None

    def found(records: list[Record]) -> tuple[bool, str]:
        capsys.readouterr()
        return module.check_zoo(Zoo.open(zoo), records), capsys.readouterr().out

    held, told = found(records)
    assert held
    assert "as recorded" in told
    assert not found([])[0]
    other = records[0] | {"accuracy": {"clean": 0.5, "auto": 0.25}}
    held, told = found([other])
    assert not held
    assert "has other accuracies than the index" in told
    index = json.loads((zoo / "index.json").read_text())
    index["entries"][0]["worst_accuracy"] = 0.25
    (zoo / "index.json").write_text(json.dumps(index))
    held, told = found([records[0] | {"accuracy": {"clean": entry.clean_accuracy, "auto": 0.25}}])
    assert not held
    assert "25.00" in told
