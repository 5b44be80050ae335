"""Heterophilous graphs in the layout of Platonov et al."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.inventory import statistics
from robust_diffusion.data.sources import load_heterophilous
from robust_diffusion.errors import ConfigError, DataError

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
