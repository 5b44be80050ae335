from pathlib import Path

import pytest

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import download
from robust_diffusion.data.inventory import (
    dataset_names,
    dataset_statistics,
    list_datasets,
    verify_files,
)
from tests.data.files import EDGES, NUM_NODES, raw_graph, write_grb, write_planetoid


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(download.pooch, "retrieve", never)


def states(data_dir: Path) -> dict[str, str]:
    frame = list_datasets(data_dir)
    return dict(zip(frame["dataset"], frame["state"], strict=True))


def test_every_option_but_custom_is_named() -> None:
    options = {path.stem for path in (CONFIG_DIR / "dataset").glob("*.yaml")}
    assert set(dataset_names()) == options - {"custom"}


def test_an_empty_directory_lacks_all_but_what_is_drawn(tmp_path: Path) -> None:
    found = states(tmp_path)
    assert found.pop("synthetic") == "built in"
    assert set(found.values()) == {"missing"}
    assert not list(tmp_path.iterdir())


def test_present_partial_and_damaged_are_told_apart(tmp_path: Path) -> None:
    write_grb(tmp_path, name="citeseer")
    (write_grb(tmp_path, name="flickr") / "adj.npz").unlink()
    write_grb(tmp_path, name="cora")  # not the files of the known hashes
    found = states(tmp_path)
    assert found["citeseer"] == "present"
    assert found["flickr"] == "1 of 4 files missing"
    assert found["cora"] == "4 of 4 files damaged"


@pytest.mark.parametrize("name", ["a b", "it's", "a=b,{c}", "$x", "[1]", 'a"b', "back\\slash"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    write_grb(tmp_path / name, name="citeseer")
    assert states(tmp_path / name)["citeseer"] == "present"


def test_each_file_has_its_state_and_hash_or_its_addresses(tmp_path: Path) -> None:
    folder = write_grb(tmp_path, name="citeseer")
    (folder / "labels.npz").write_bytes(b"<html></html>")
    (folder / "index.npz").unlink()
    before = sorted(tmp_path.rglob("*"))
    frame = verify_files(tmp_path).query("dataset == 'citeseer'").set_index("file")
    assert frame["state"].to_dict() == {
        "adj.npz": "present",
        "features.npz": "present",
        "labels.npz": "damaged",
        "index.npz": "missing",
    }
    assert len(frame.loc["adj.npz", "sha256"]) == 64
    assert frame.loc["index.npz", "sha256"] == "-"
    assert frame.loc["index.npz", "detail"].startswith("https://")
    assert "web page" in frame.loc["labels.npz", "detail"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dataset_that_is_there_has_statistics(tmp_path: Path) -> None:
    write_grb(tmp_path, name="citeseer")
    frame = dataset_statistics(tmp_path).set_index("dataset")
    assert set(frame.index) == {"citeseer", "synthetic"}
    row = frame.loc["citeseer"]
    assert (row["nodes"], row["edges"], row["features"]) == (NUM_NODES, len(EDGES), 3)
    assert row["problem"] == "-"
    assert len(row["split"]) == 16


def test_whole_files_that_hold_no_graph_have_their_problem(tmp_path: Path) -> None:
    write_grb(tmp_path, name="citeseer", labels=raw_graph()["labels"] + 1)
    write_planetoid(tmp_path / "planetoid" / "PubMed" / "raw", "pubmed", tx=b"\x80\x02]q\x00.")
    frame = dataset_statistics(tmp_path).set_index("dataset")
    assert "label 4 is out of range" in frame.loc["citeseer", "problem"]
    assert "ind.pubmed.tx: holds no sparse matrix" in frame.loc["pubmed", "problem"]
    assert frame.loc["citeseer", "nodes"] == "-"
    assert frame.loc["synthetic", "nodes"] == 2680
