"""Pro-GNN's layout, and the changed edges of its poisoned graphs."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from omegaconf import DictConfig

from robust_diffusion import Budget, GivenGraph, open_dataset
from robust_diffusion.attacks import spent_budget
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.sources import load_prognn
from robust_diffusion.errors import DataError
from tests.data.files import csr_parts, raw_graph

FILES = ("toy.npz", "toy_prognn_splits.json")
SPLIT = {"idx_train": [4, 0, 1], "idx_val": [2, 3], "idx_test": list(range(5, 19))}


def written(folder: Path, **split: Any) -> DatasetFolder:
    raw = raw_graph()
    arrays = csr_parts(raw["adjacency"], "adj")
    arrays |= csr_parts(sp.csr_matrix(raw["features"] > 0), "attr")
    np.savez(folder / FILES[0], labels=raw["labels"], **arrays)
    (folder / FILES[1]).write_text(json.dumps(SPLIT | split))
    return DatasetFolder(folder, ".", {name: {} for name in FILES}, download=False)


def test_graph_and_split_are_those_of_the_files(tmp_path: Path) -> None:
    graph = load_prognn(written(tmp_path), "toy")
    raw = raw_graph()
    assert torch.equal(graph.x.bool(), torch.from_numpy(raw["features"] > 0))
    assert graph.edge_index.size(1) == raw["adjacency"].nnz
    for key, nodes in SPLIT.items():
        assert graph[key.replace("idx", "index")].tolist() == sorted(nodes)


@pytest.mark.faults
@pytest.mark.parametrize("split", [{"idx_val": None}, {"idx_val": [0]}, {"idx_test": ["a"]}])
def test_a_split_that_cannot_be_is_refused(tmp_path: Path, split: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"^[^\n]*toy[^\n]*$"):
        load_prognn(written(tmp_path, **split), "toy")
    (tmp_path / FILES[1]).write_text("[1")
    (tmp_path / "sha256.json").unlink(missing_ok=True)
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
        given = (graph, torch.arange(graph.num_nodes), Budget(), torch.Generator())
        spent = spent_budget(graph, attack(lambda *_: None, *given))
        assert spent.added_edges + spent.removed_edges == changed
        assert changed == int(rate * graph.edge_index.size(1) // 2) or name == "citeseer"
