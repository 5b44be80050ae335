import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion import load_model, open_dataset
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.robustness.subject import subject_of
from robust_diffusion.robustness.zoo import Zoo, build_recorded
from robust_diffusion.system.artifact import Artifact, write_artifact
from robust_diffusion.system.hashes import file_hash
from tests.zoo import CONFIG


@pytest.fixture
def zoo(zoo_folder: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(zoo_folder, tmp_path / "zoo"))


def changed(folder: Path, **changes: Any) -> Path:
    index = json.loads((folder / "index.json").read_text())
    index["entries"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def test_a_model_is_loaded_as_it_was_trained(zoo_folder: Path) -> None:
    zoo = Zoo.open(zoo_folder)
    (entry,) = zoo.entries
    before = torch.get_rng_state()
    model = load_model("gcn", "synthetic", directory=zoo_folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.training for part in model.modules())
    datamodule = open_dataset("synthetic")
    subject = subject_of(model, datamodule, "test", None)
    graph = zoo.worst_graph(entry, datamodule.graph)
    found = [subject.accuracy(subject.logits(g, 0)) for g in (subject.graph, graph)]
    assert found == [entry.clean_accuracy, entry.worst_accuracy]
    assert found[0] > found[1]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "torch.nn.Linear",
        "robust_diffusion.robustness.zoo.os.system",
        "robust_diffusion.records.store.ArtifactStore",
        "robust_diffusion.models.gcn.nn.Linear",
        "robust_diffusion.models.NoSuchModel",
        "robust_diffusion",
        3,
    ],
)
@pytest.mark.parametrize("place", ["itself", "inside"])
def test_a_configuration_that_names_anything_else_is_data(target: Any, place: str) -> None:
    foreign = {"_target_": target}
    config = CONFIG | (foreign if place == "itself" else {"flow": [{"of": foreign}]})
    with pytest.raises(DataError, match=r"test: .*(names|there is no) "):
        build_recorded(config, 2, 2, where="test")
    no_model = {"_target_": "robust_diffusion.models.Rewiring"}
    for changes in ({"dropout": "${oc.env:HOME}"}, {"layers": 2}, no_model):
        with pytest.raises(DataError, match="test: "):
            build_recorded(CONFIG | changes, 2, 2, where="test")


def test_the_folder_may_be_named_by_the_environment_and_an_unknown_model_is_refused(
    zoo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUST_DIFFUSION_ZOO", str(zoo_folder))
    assert load_model("gcn", dataset="synthetic", variant="paper").eval() is not None
    for wanted in (("beltrami", "synthetic"), ("gcn", "cora"), ("gcn", "synthetic", "released")):
        with pytest.raises(ConfigError, match=wanted[0]):
            load_model(*wanted, directory=zoo_folder)


def test_weights_that_index_does_not_know_are_refused_and_pickle_is_never_read(zoo: Path) -> None:
    path = zoo / "model-gcn.safetensors"
    write_artifact(path, Artifact({"weight": torch.zeros(1)}))
    with pytest.raises(DataError, match="SHA-256"):
        load_model("gcn", "synthetic", directory=zoo)
    with pytest.raises(DataError, match="does not fit"):
        load_model("gcn", "synthetic", directory=changed(zoo, sha256=file_hash(path)))
    torch.save({"weight": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="damaged"):
        load_model("gcn", "synthetic", directory=changed(zoo, sha256=file_hash(path)))
    for other in ({"file": "../model-gcn.safetensors"}, {"seed": "0"}):
        with pytest.raises(DataError, match=next(iter(other))):
            Zoo.open(changed(zoo, **other))


@pytest.mark.parametrize("text", [None, "{", "[]", '{"entries": [{}]}'])
def test_an_index_that_is_none(tmp_path: Path, text: str | None) -> None:
    if text:
        (tmp_path / "index.json").write_text(text)
    with pytest.raises(DataError, match=r"index\.json"):
        load_model("gcn", directory=tmp_path)
