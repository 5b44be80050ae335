"""Graphs that come with a split: heterophilous ones of Platonov et al., and those of Pro-GNN."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from robust_diffusion import Budget, open_dataset
from robust_diffusion.attacks import GivenGraph, Task, spent_budget
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.inventory import statistics
from robust_diffusion.data.sources import load_defense_test, load_heterophilous, load_prognn
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.models.victim import Victim
from tests.data.files import csr_parts, raw_graph

N, EDGES = 12, np.array([(i, i + 1) for i in range(11)])


def written(folder: Path, **changed: Any) -> DatasetFolder:
    part = np.random.default_rng(0).permuted(np.tile(np.arange(N) % 3, (10, 1)), axis=1)
    arrays = {f"{name}_masks": part == i for i, name in enumerate(("train", "val", "test"))}
    features, labels = np.eye(N, dtype=np.float32), np.arange(N) % 4
    arrays |= {"node_features": features, "node_labels": labels, "edges": EDGES}
    arrays = {key: value for key, value in (arrays | changed).items() if value is not None}
    np.savez(folder / "toy.npz", **arrays)
    return DatasetFolder(folder, ".", {"toy.npz": {}}, download=False)


def test_graph_and_split_are_those_of_the_file(tmp_path: Path) -> None:
    folder = written(tmp_path)
    masks = np.load(tmp_path / "toy.npz")["test_masks"]
    for split in (0, 9):
        graph = load_heterophilous(folder, "toy", split=split)
        assert torch.equal(graph.x, torch.eye(N))
        assert graph.edge_index.size(1) == 2 * len(EDGES)
        assert graph.index_test.tolist() == masks[split].nonzero()[0].tolist()


@pytest.mark.faults
@pytest.mark.parametrize(
    "changed", [{"edges": None}, {"edges": EDGES + 1}, {"edges": EDGES[:, 0]}, {"node_labels": [0]}]
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="toy"):
        load_heterophilous(written(tmp_path, **changed), "toy")


@pytest.mark.parametrize("split", [10, -1, "a"])
def test_a_split_that_is_not_there_is_refused(tmp_path: Path, split: Any) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.source\.split"):
        load_heterophilous(written(tmp_path), "toy", split=split)


def defense_test(folder: Path, **changed: Any) -> DatasetFolder:
    """A folder with a file in the form of arXiv:2301.13694."""
    ones = np.array([(i, i % 3) for i in range(N)])
    arrays = {
        "toy/dataset/adjacency": EDGES,
        "toy/dataset/features": ones,
        "toy/dataset/labels": np.arange(N) % 4,
        "toy/splits/1/train": [0, 1],
        "toy/splits/1/val": [2],
        "toy/splits/1/test": np.arange(3, N),
        "toy/perturbations/evasion/gcn/split_1/budget_2": np.array([(0, 1), (3, 9)]),
    } | {f"toy/dataset/{part}": array for part, array in changed.items()}
    np.savez(folder / "unit_test.npz", **arrays)
    return DatasetFolder(folder, ".", {"unit_test.npz": {}}, download=False)


def test_a_graph_of_the_defense_test_is_read(tmp_path: Path) -> None:
    graph = load_defense_test(defense_test(tmp_path), "toy", split=1)
    assert graph.x.argmax(1).tolist() == [i % 3 for i in range(N)]
    assert graph.edge_index.size(1) == 2 * len(EDGES)
    assert graph.index_test.tolist() == list(range(3, N))
    with pytest.raises(ConfigError, match=r"dataset\.source\.split=0: [^\n]* 1$"):
        load_defense_test(defense_test(tmp_path), "toy")


@pytest.mark.faults
@pytest.mark.parametrize(
    "changed", [{"adjacency": EDGES + 1}, {"features": EDGES[0]}, {"features": np.ones((2, 2))}]
)
def test_a_damaged_defense_test_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="unit_test"):
        load_defense_test(defense_test(tmp_path, **changed), "toy", split=1)


SIZES = {
    "squirrel_filtered": (2223, 46998),
    "chameleon_filtered": (890, 8854),
    "minesweeper": (10000, 39402),
    "actor": (7600, 26659),
    "texas": (183, 279),
}


@pytest.mark.real_data
@pytest.mark.parametrize("name", SIZES)
def test_graphs_have_their_published_sizes(compose: Callable[..., DictConfig], name: str) -> None:
    datamodule = instantiate(compose(f"dataset={name}", "dataset.source.split=3").data)
    datamodule.setup()
    found = statistics(datamodule)
    assert (found.nodes, found.edges) == SIZES[name]
    assert name == "minesweeper" or found.homophily < 0.35


FILES = ("toy.npz", "toy_prognn_splits.json")
SPLIT = {"idx_train": [4, 0, 1], "idx_val": [2, 3], "idx_test": list(range(5, 19))}


def write_prognn(folder: Path, **split: Any) -> DatasetFolder:
    raw = raw_graph()
    arrays = csr_parts(raw["adjacency"], "adj")
    arrays |= csr_parts(sp.csr_matrix(raw["features"] > 0), "attr")
    np.savez(folder / FILES[0], labels=raw["labels"], **arrays)
    (folder / FILES[1]).write_text(json.dumps(SPLIT | split))
    return DatasetFolder(folder, ".", {name: {} for name in FILES}, download=False)


def test_a_graph_of_prognn_is_that_of_its_files(tmp_path: Path) -> None:
    graph = load_prognn(write_prognn(tmp_path), "toy")
    raw = raw_graph()
    assert torch.equal(graph.x.bool(), torch.from_numpy(raw["features"] > 0))
    assert graph.edge_index.size(1) == raw["adjacency"].nnz
    for key, nodes in SPLIT.items():
        assert graph[key.replace("idx", "index")].tolist() == sorted(nodes)


@pytest.mark.faults
@pytest.mark.parametrize("split", [{"idx_val": None}, {"idx_val": [0]}, {"idx_test": ["a"]}])
def test_a_split_that_cannot_be_is_refused(tmp_path: Path, split: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"^[^\n]*toy[^\n]*$"):
        load_prognn(write_prognn(tmp_path, **split), "toy")
    (tmp_path / FILES[1]).write_text("[1")
    with pytest.raises(DataError, match=r"splits\.json: cannot be read"):
        load_prognn(DatasetFolder(tmp_path, ".", {name: {} for name in FILES}), "toy")


CHANGED = {"cora": (253, 506, 760, 1013, 1267), "citeseer": (183, 366, 550, 733, 917)}


@pytest.mark.real_data
@pytest.mark.parametrize("name", CHANGED)
def test_poisoned_graphs_differ_in_a_share_of_the_edges(
    compose: Callable[..., DictConfig], name: str
) -> None:
    graph = open_dataset(f"prognn_{name}").graph
    folder = Path(os.environ["ROBUST_DIFFUSION_DATA"], "poisoning")
    for rate, changed in zip((0.05, 0.1, 0.15, 0.2, 0.25), CHANGED[name], strict=True):
        attack = GivenGraph(path=folder / f"{name}_meta_adj_{rate}.npz")
        victim = Victim(lambda *_: None, graph.x, graph.edge_index)
        task = Task(graph, torch.arange(graph.num_nodes), graph.y)
        spent = spent_budget(graph, attack(victim, task, Budget(), torch.Generator()))
        assert spent.added_edges + spent.removed_edges == changed
        assert changed == int(rate * graph.edge_index.size(1) // 2) or name == "citeseer"
