"""The dataset options: on small files in the exact layout, and on the real ones where present."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch_geometric.data import Data

from robust_diffusion.data.inventory import statistics
from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import DataError
from tests.data.files import raw_graph, write_grb, write_planetoid

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
}


def loaded(compose: Compose, dataset: str, data_dir: object) -> Data:
    cfg = compose(f"dataset={dataset}", f"paths.data_dir={data_dir}", "download=false")
    return instantiate(cfg.data).graph


@pytest.mark.parametrize("dataset", ["citeseer", "flickr"])
def test_grb_options_on_small_files(compose: Compose, tmp_path: Path, dataset: str) -> None:
    data_dir = tmp_path / "my data"
    write_grb(data_dir, name=dataset)
    expected = build_graph(**raw_graph(), where="ring")
    graph = loaded(compose, dataset, f"'{data_dir}'")
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert torch.equal(graph.index_test_hard, expected.index_test_hard)


def test_hashes_of_files_are_kept_once_they_make_a_graph(compose: Compose, tmp_path: Path) -> None:
    folder = write_planetoid(tmp_path / "planetoid" / "PubMed" / "raw", "pubmed")
    whole = (folder / "ind.pubmed.allx").read_bytes()
    (folder / "ind.pubmed.allx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"ind\.pubmed\.allx"):
        loaded(compose, "pubmed", tmp_path)
    assert not (folder / "sha256.json").exists()
    (folder / "ind.pubmed.allx").write_bytes(whole)
    graph = loaded(compose, "pubmed", tmp_path)
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (60, 6, 3)
    assert graph.index_test_easy.numel() == 6
    assert (folder / "sha256.json").is_file()


@pytest.mark.parametrize("dataset", FOLDERS)
def test_an_absent_dataset_says_what_to_fetch(
    compose: Compose, tmp_path: Path, dataset: str
) -> None:
    data_dir = tmp_path / "nothing"
    cfg = compose(f"dataset={dataset}", f"paths.data_dir={data_dir}", "download=false")
    first = ""
    for options in cfg.dataset.source.folder.files.values():
        assert options.urls[0].startswith("https://")
        first = first or options.urls[0]
    with pytest.raises(DataError) as caught:
        instantiate(cfg.data).setup()
    message = str(caught.value)
    assert str(data_dir / FOLDERS[dataset]) in message
    assert first in message
    assert not data_dir.exists()


REAL = [pytest.param(of, marks=() if of == "cora" else pytest.mark.slow) for of in FOLDERS]


@pytest.mark.real_data
@pytest.mark.parametrize("dataset", REAL)
def test_real_data_are_the_published_ones_and_train(
    compose: Compose, cli: Cli, dataset: str
) -> None:
    if not (Path(os.environ["ROBUST_DIFFUSION_DATA"]) / FOLDERS[dataset]).is_dir():
        pytest.skip(f"no {FOLDERS[dataset]} in ROBUST_DIFFUSION_DATA")
    cfg = compose(f"dataset={dataset}", "download=false")
    datamodule = instantiate(cfg.data)
    found = statistics(datamodule)
    if "printed" in cfg.dataset:
        printed = cfg.dataset.printed
        assert (found.nodes, found.edges) == (printed.nodes, printed.edges)
        assert (found.features, found.classes) == (printed.features, printed.classes)
        measured = [f"{value:.2f}" for value in found.feature_range]
        assert measured == [f"{value:.2f}" for value in printed.feature_range]
    if dataset == "cora":  # split as in GRB
        sizes = [datamodule.graph[f"index_{name}"].numel() for name in SPLITS]
        assert sizes == [1608, 268, 804, 268, 268, 268]
    outcome = cli(
        *(f"dataset={dataset}", "download=false", "attack=none", "flow=heat", "trainer=cpu"),
        *("model.hidden_channels=4", "model.num_layers=1", "training.max_epochs=1"),
    )
    assert outcome.status == 0, outcome.err
    (record,) = outcome.records
    assert (record["dataset"], record["epochs"]) == (dataset, 1)
    assert record["split"] == found.split
