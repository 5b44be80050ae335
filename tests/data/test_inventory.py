"""What is there of each dataset: on small files in the exact layout, and on the real ones."""

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.folders import list_datasets, verify_files
from robust_diffusion.data.inventory import dataset_statistics, statistics
from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import DataError
from tests.data.files import (
    EDGES,
    NUM_NODES,
    raw_graph,
    splits,
    symmetric,
    write_grb,
    write_planetoid,
)

pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize("name", ["", """$x, it's=[1] {c} "back\\slash" """.strip()])
def test_present_partial_and_damaged_are_told_apart(tmp_path: Path, name: str) -> None:
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
    files = verify_files(tmp_path / name).query("dataset == 'citeseer'")
    assert set(files["state"]) == {"present"}
    assert {len(of) for of in files["sha256"]} == {64}


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


Compose = Callable[..., DictConfig]
Cli = Callable[..., Any]

FOLDERS = {
    "cora": "grb-cora",
    "citeseer": "grb-citeseer",
    "flickr": "grb-flickr",
    "pubmed": "planetoid/PubMed/raw",
    "coauthor": "coauthor/CS/raw",
    "amazon_computer": "amazon/Computers/raw",
    "planetoid_cora": "planetoid/Cora/raw",
    "planetoid_citeseer": "planetoid/CiteSeer/raw",
    "citeseer_words": "planetoid/CiteSeer/raw",
}


def test_a_dataset_of_two_folders_needs_both(tmp_path: Path) -> None:
    shutil.copytree(write_grb(tmp_path / "other", name="citeseer"), tmp_path / "grb-citeseer-words")
    state = list_datasets(tmp_path).set_index("dataset").loc["citeseer_words", "state"]
    assert "of 9 files" in state
    files = verify_files(tmp_path).query("dataset == 'citeseer_words' and state == 'missing'")
    assert len(files) == 6


@pytest.mark.parametrize("dataset", FOLDERS)
def test_absent_dataset_says_what_to_fetch(compose: Compose, tmp_path: Path, dataset: str) -> None:
    data_dir = tmp_path / "nothing"
    cfg = compose(f"dataset={dataset}", f"paths.data_dir={data_dir}", "download=false")
    files = cfg.dataset.source.folder.files.values()
    assert all(options.urls[0].startswith("https://") for options in files)
    with pytest.raises(DataError, match=str(data_dir / FOLDERS[dataset])):
        instantiate(cfg.data).setup()
    assert not data_dir.exists()


REAL = [
    pytest.param(of, marks=() if of == "cora" else pytest.mark.slow)
    for of in ("cora", "pubmed", "amazon_computer", "citeseer_words")  # one of each format
]


@pytest.mark.real_data
@pytest.mark.parametrize("dataset", REAL)
def test_a_real_graph_trains_on_its_split(compose: Compose, cli: Cli, dataset: str) -> None:
    if not (Path(os.environ["ROBUST_DIFFUSION_DATA"]) / FOLDERS[dataset]).is_dir():
        pytest.skip(f"no {FOLDERS[dataset]} in ROBUST_DIFFUSION_DATA")
    cfg = compose(f"dataset={dataset}", "download=false")
    datamodule = instantiate(cfg.data)
    found = statistics(datamodule)
    if dataset == "cora":  # split as in GRB
        sizes = [datamodule.graph[f"index_{name}"].numel() for name in SPLITS]
        assert sizes == [1608, 268, 804, 268, 268, 268]
    outcome = cli(
        *(f"dataset={dataset}", "download=false", "attack=none", "flow=heat", "trainer=cpu"),
        *("model.hidden_channels=4", "model.num_layers=1", "training.max_epochs=1"),
    )
    assert outcome.status == 0, outcome.err
    (record,) = outcome.records
    assert (record.dataset, record.epochs) == (dataset, 1)
    assert record.split == found.split
