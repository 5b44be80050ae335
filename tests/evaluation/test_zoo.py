import json
import os
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion import load_model, open_dataset
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation import unit_test
from robust_diffusion.evaluation.zoo import Zoo, build_recorded
from robust_diffusion.records.record import Record
from robust_diffusion.system.artifact import Artifact, write_artifact
from robust_diffusion.system.hashes import file_hash
from tests.test_experiments import script
from tests.zoo import BUDGET, CONFIG


@pytest.fixture
def zoo(zoo_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zoo_folder, tmp_path / "zoo"))


def changed(folder: Path, **changes: Any) -> Path:
    index = json.loads((folder / "index.json").read_text())
    index["entries"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def test_load_model_names(zoo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_rng_state()
    monkeypatch.setenv("ROBUST_DIFFUSION_ZOO", str(zoo_folder))
    model = load_model("gcn", dataset="synthetic", variant="paper")
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.training for part in model.modules())
    for wanted in (("beltrami", "synthetic"), ("gcn", "cora"), ("gcn", "synthetic", "released")):
        with pytest.raises(ConfigError, match=wanted[0]):
            load_model(*wanted, directory=zoo_folder)


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "robust_diffusion.evaluation.zoo.os.system",
        "robust_diffusion.records.store.ArtifactStore",
        "robust_diffusion.models.convolutional.nn.Linear",
        "robust_diffusion.models.NoSuchModel",
        3,
    ],
)
@pytest.mark.parametrize("place", ["itself", "inside"])
def test_build_recorded_other_targets(target: Any, place: str) -> None:
    foreign = {"_target_": target}
    config = CONFIG | (foreign if place == "itself" else {"flow": [{"of": foreign}]})
    with pytest.raises(DataError, match=r"test: .*(names|there is no) "):
        build_recorded(config, 2, 2, where="test")
    no_model = {"_target_": "robust_diffusion.models.Rewiring"}
    for changes in ({"dropout": "${oc.env:HOME}"}, {"layers": 2}, no_model):
        with pytest.raises(DataError, match="test: "):
            build_recorded(CONFIG | changes, 2, 2, where="test")


def test_load_model_other_weights(zoo: Path) -> None:
    path = zoo / "model-gcn.safetensors"
    write_artifact(path, Artifact({"weight": torch.zeros(1)}))
    with pytest.raises(DataError, match="SHA-256"):
        load_model("gcn", "synthetic", directory=zoo)
    with pytest.raises(DataError, match="does not fit"):
        load_model("gcn", "synthetic", directory=changed(zoo, sha256=file_hash(path)))
    torch.save({"weight": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="damaged"):
        load_model("gcn", "synthetic", directory=changed(zoo, sha256=file_hash(path)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("file", "../model-gcn.safetensors"), ("seed", "0")),
        *(("clean_accuracy", 7.0), ("worst_accuracy", -0.1), ("worst_accuracy", "high")),
    ],
)
def test_zoo_bad_fields(zoo: Path, key: str, value: Any) -> None:
    with pytest.raises(DataError, match=rf"index\.json: [^\n]*{key}"):
        Zoo.open(changed(zoo, **{key: value}))


def write_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 * 2**30)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, ""),
        *(
            (partial(Path.write_text, data=text), "")
            for text in ("", "{", "[]", '{"entries": [{}]}')
        ),
        *((make, "expected a file of at most") for make in (write_large, os.mkfifo)),
    ],
)
def test_zoo_bad_index(tmp_path: Path, make: Any, problem: str) -> None:
    make(tmp_path / "index.json")
    with pytest.raises(DataError, match=rf"index\.json: {problem}"):
        load_model("gcn", directory=tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_test_accuracy(zoo_folder: Path, dtype: torch.dtype) -> None:
    entry = Zoo.open(zoo_folder).entries[0]
    model = load_model("gcn", "synthetic", directory=zoo_folder).train().to(dtype)
    data = open_dataset("synthetic")
    found = unit_test(model, data, "synthetic", directory=zoo_folder)
    assert found["accuracy"].tolist() == [entry.clean_accuracy, entry.worst_accuracy]
    assert entry.clean_accuracy > entry.worst_accuracy
    assert found["made_on"].tolist() == ["", "gcn"]
    assert model.training


@pytest.mark.parametrize("nodes", ["test", "val", [0, 5]])
def test_unit_test_targets(zoo_folder: Path, nodes: Any) -> None:
    model, data = load_model("gcn", "synthetic", directory=zoo_folder), open_dataset("synthetic")
    scored = partial(unit_test, model, data.graph, "synthetic", directory=zoo_folder)
    with pytest.raises(ConfigError, match=r"^targets: [^\n]*open_dataset\('synthetic'\)[^\n]*$"):
        scored(targets=nodes)


@pytest.fixture
def records(zoo_folder: Path) -> list[Record]:
    """A run of a worst case, and one of a lower seed, whose files are gone."""
    (entry,) = Zoo.open(zoo_folder).entries
    found = {
        "run": "gcn-0",
        "experiment": "worst-case",
        "dataset": "synthetic",
        "difficulty": "easy",
        "fidelity": "paper",
        "model": "gcn",
        "flow": None,
        "threat": "white_box",
        "seed": 1,
        "split": "grb",
        "budget": asdict(BUDGET),
        "accuracy": {"clean": entry.clean_accuracy, "auto": entry.worst_accuracy},
        "files": {"victim": entry.file, "auto": entry.graph},
        "config": {"model": entry.config, "data": {}},
    }
    gone = {name: f"graph-{name}.safetensors" for name in ("victim", "auto")}
    record = Record.model_validate(found)
    return [record, record | {"run": "of seed 0", "seed": 0, "files": gone}]


def test_make_zoo_and_check(
    records: list[Record], zoo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, made = script("make_zoo"), tmp_path / "zoo"
    module.write_zoo(list(module.zoo_of(records, zoo_folder)), made)
    assert "gcn on synthetic, paper, seed 0: not in" in capsys.readouterr().err
    (entry,) = Zoo.open(made).entries
    (run, worst) = (records[0], min(records[0].accuracy.values()))
    assert (entry.run, entry.seed, entry.worst_accuracy) == (run.run, 1, worst)
    assert {path.name for path in made.iterdir()} == {entry.file, entry.graph, "index.json"}

    weaker = replace(entry, run="later", worst_accuracy=worst + 0.1)
    module.write_zoo([module.Made(weaker, *[Artifact({"weight": torch.ones(1)})] * 2)], made)
    assert Zoo.open(made).entries == [entry]  # a weaker graph of the same weights replaces none

    def found(records: list[Record]) -> tuple[bool, str]:
        capsys.readouterr()
        return module.check_zoo(Zoo.open(made), records), capsys.readouterr().out

    held, told = found(records)
    assert held
    assert "as recorded" in told
    assert not found([])[0]
    other = records[0] | {"accuracy": {"clean": 0.5, "auto": 0.25}}
    held, told = found([other])
    assert not held
    assert "has other accuracies than the index" in told
    changed(made, worst_accuracy=0.25)
    other |= {"accuracy": {"clean": entry.clean_accuracy, "auto": 0.25}}
    assert not found([other])[0]
