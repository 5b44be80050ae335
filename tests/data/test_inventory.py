import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule, download
from robust_diffusion.data.inventory import (
    dataset_statistics,
    list_datasets,
    statistics,
    verify_files,
)
from robust_diffusion.data.validate import build_graph
from tests.data.files import (
    EDGES,
    NUM_NODES,
    raw_graph,
    splits,
    symmetric,
    write_grb,
    write_planetoid,
)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(download.pooch, "retrieve", never)


@pytest.mark.parametrize("name", ["", "a b, it's", "a=b,{c}", '$x [1] "back\\slash"'])
def test_present_partial_and_damaged_are_told_apart_in_any_folder(
    tmp_path: Path, name: str
) -> None:
    write_grb(tmp_path / name, name="citeseer")
    (write_grb(tmp_path / name, name="flickr") / "adj.npz").unlink()
    write_grb(tmp_path / name, name="cora")  # not the files of the known hashes
    frame = list_datasets(tmp_path / name)
    found = dict(zip(frame["dataset"], frame["state"], strict=True))
    assert found.pop("synthetic") == "built in"
    assert found.pop("citeseer") == "present"
    assert found.pop("flickr") == "1 of 4 files missing"
    assert found.pop("cora") == "4 of 4 files damaged"
    assert set(found.values()) == {"missing"}


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
    assert frame.loc["index.npz", "detail"].startswith("https://")
    assert "web page" in frame.loc["labels.npz", "detail"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dataset_that_is_there_has_statistics_or_its_problem(tmp_path: Path) -> None:
    write_grb(tmp_path, name="citeseer")
    write_grb(tmp_path, name="flickr", labels=raw_graph()["labels"] + 1)
    write_planetoid(tmp_path / "planetoid" / "PubMed" / "raw", "pubmed", tx=b"\x80\x02]q\x00.")
    frame = dataset_statistics(tmp_path).set_index("dataset")
    assert set(frame.index) == {"citeseer", "flickr", "pubmed", "synthetic"}
    row = frame.loc["citeseer"]
    assert (row["nodes"], row["edges"], row["features"]) == (NUM_NODES, len(EDGES), 3)
    assert row["problem"] == "-"
    assert "labels" in frame.loc["flickr", "problem"]
    assert "ind.pubmed.tx: " in frame.loc["pubmed", "problem"]
    assert frame.loc["flickr", "nodes"] == "-"
    assert frame.loc["synthetic", "nodes"] == 2680


def served(difficulty: str = "easy", **changes: object) -> GraphDataModule:
    graph: Data = build_graph(**raw_graph(**changes), where="ring")
    return GraphDataModule(lambda: graph, name="ring", difficulty=difficulty)  # type: ignore[arg-type]


def test_statistics_are_those_of_the_graph() -> None:
    raw = raw_graph()["features"].astype(np.float32).astype(float)
    normalised = 2 / math.pi * np.arctan((raw - raw.mean()) / raw.std())
    labels = np.arange(NUM_NODES) % 4
    labels[1] = 0  # so that edge 0-1 is inside a class
    labels[14] = 3  # of nodes 11 to 19, now four are of class 3
    inside = sum(labels[u] == labels[v] for u, v in EDGES)
    assert inside > 0
    easy, full = (statistics(served(of, labels=labels)) for of in ("easy", "full"))
    expected = (normalised.min(), normalised.max())
    assert easy.feature_range == pytest.approx(expected, rel=1e-6)
    assert (easy.nodes, easy.edges, easy.features, easy.classes) == (NUM_NODES, len(EDGES), 3, 4)
    assert easy.homophily == pytest.approx(inside / len(EDGES))
    assert (easy.largest_class, full.largest_class) == pytest.approx((1 / 3, 4 / 9))
    empty = statistics(served(adjacency=sp.csr_array((NUM_NODES, NUM_NODES))))
    assert empty.edges == 0
    assert math.isnan(empty.homophily)
    same = statistics(served(adjacency=symmetric(EDGES[:5])))
    other = statistics(served(splits=splits(val=np.arange(8, 10))))
    assert easy.split == same.split != other.split
