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
from tests.zoo import CONFIG, small_zoo


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_zoo(tmp_path_factory.mktemp("zoo")).directory


@pytest.fixture
def zoo(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / "zoo"))


def changed(folder: Path, **changes: Any) -> Path:
    index = json.loads((folder / "index.json").read_text())
    index["entries"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def test_a_model_is_loaded_as_it_was_trained(made: Path) -> None:
    zoo = Zoo.open(made)
    (entry,) = zoo.entries
    before = torch.get_rng_state()
    model = load_model("gcn", "synthetic", directory=made)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.training for part in model.modules())
    datamodule = open_dataset("synthetic")
    subject = subject_of(model, datamodule, "test", None)
    graph = zoo.worst_graph(entry, datamodule.graph)
    found = [subject.accuracy(subject.logits(g, 0)) for g in (subject.graph, graph)]
    assert found == [entry.clean_accuracy, entry.worst_accuracy]
    assert found[0] > found[1]


def test_the_folder_may_be_named_by_the_environment(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUST_DIFFUSION_ZOO", str(made))
    assert load_model("gcn", dataset="synthetic", variant="paper").eval() is not None


@pytest.mark.parametrize(
    "wanted", [("beltrami", "synthetic"), ("gcn", "cora"), ("gcn", "synthetic", "released")]
)
def test_an_unknown_model_lists_what_there_is(made: Path, wanted: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"no {wanted[0]} .*there is gcn on synthetic, paper"):
        load_model(*wanted, directory=made)


def test_no_zoo_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"index\.json: not found; .*ROBUST_DIFFUSION_ZOO"):
        load_model("gcn", directory=tmp_path)


def test_weights_that_the_index_does_not_know_are_refused(zoo: Path) -> None:
    path = zoo / "model-gcn.safetensors"
    write_artifact(path, Artifact({"weight": torch.zeros(1)}))
    with pytest.raises(DataError, match=r"has SHA-256 .* the index says"):
        load_model("gcn", "synthetic", directory=zoo)
    with pytest.raises(DataError, match="does not fit the model"):
        load_model("gcn", "synthetic", directory=changed(zoo, sha256=file_hash(path)))


def test_a_pickle_is_never_read(zoo: Path) -> None:
    path = zoo / "model-gcn.safetensors"
    torch.save({"weight": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="is damaged"):
        load_model("gcn", "synthetic", directory=changed(zoo, sha256=file_hash(path)))


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


def test_a_configuration_looks_nothing_up() -> None:
    with pytest.raises(DataError, match="is not resolved"):
        build_recorded(CONFIG | {"dropout": "${oc.env:HOME}"}, 2, 2, where="test")


def test_options_that_build_no_model_are_told() -> None:
    with pytest.raises(DataError, match="layers"):
        build_recorded(CONFIG | {"layers": 2}, 2, 2, where="test")
    rewiring = {"_target_": "robust_diffusion.models.Rewiring"}
    with pytest.raises(DataError, match="argument 'in_channels'"):
        build_recorded(rewiring, 2, 2, where="test")


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "text"), ("[]", "text"), ('{"entries": [{}]}', "name")],
)
def test_an_index_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(DataError, match=said):
        load_model("gcn", directory=tmp_path)


@pytest.mark.parametrize("changes", [{"file": "../model-gcn.safetensors"}, {"seed": "0"}])
def test_an_entry_of_other_things(zoo: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"file|seed"):
        Zoo.open(changed(zoo, **changes))
