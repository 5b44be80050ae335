"""Loaders of published graphs, each on small files in its layout."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import coalesce

from robust_diffusion import Budget, open_dataset
from robust_diffusion.attacks import GivenGraph, Task, spent_budget
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.inventory import statistics
from robust_diffusion.data.sources import (
    load_custom,
    load_defense_test,
    load_grb,
    load_grb_words,
    load_heterophilous,
    load_planetoid,
    load_prognn,
    load_shchur,
)
from robust_diffusion.data.sources.benchmarks import PARTS
from robust_diffusion.data.validate import SPLITS
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.models.victim import Victim
from tests.data.files import (
    EDGES,
    FILES,
    NUM_NODES,
    Bomb,
    csr_parts,
    planetoid_parts,
    raw_graph,
    refusal,
    shchur_arrays,
    splits,
    symmetric,
    write_grb,
    write_planetoid,
)
from tests.data.sources.test_custom import RING, equal, is_split_by_degree

N, ALONG = 12, np.array([(i, i + 1) for i in range(11)])
SPLIT = {"idx_train": [4, 0, 1], "idx_val": [2, 3], "idx_test": list(range(5, 19))}
INDICES = [f"index_{part}" for part in SPLITS]


def save(path: Path, arrays: dict[str, Any], changed: dict[str, Any]) -> None:
    np.savez(path, **{k: value for k, value in (arrays | changed).items() if value is not None})


def write_planetoid_files(folder: Path, **changed: Any) -> None:
    write_planetoid(folder, "pubmed", **changed)


def write_shchur(folder: Path, **changed: Any) -> None:
    save(folder / "ring.npz", shchur_arrays(), changed)


def write_heterophilous(folder: Path, **changed: Any) -> None:
    part = np.random.default_rng(0).permuted(np.tile(np.arange(N) % 3, (10, 1)), axis=1)
    arrays = {f"{name}_masks": part == i for i, name in enumerate(("train", "val", "test"))}
    features = np.eye(N, dtype=np.float32)
    arrays |= {"node_features": features, "node_labels": np.arange(N) % 4, "edges": ALONG}
    save(folder / "toy.npz", arrays, changed)


def write_defense_test(folder: Path, **changed: Any) -> None:
    """Write a file in the form of arXiv:2301.13694."""
    arrays = {
        "toy/dataset/adjacency": ALONG,
        "toy/dataset/features": np.array([(i, i % 3) for i in range(N)]),
        "toy/dataset/labels": np.arange(N) % 4,
        "toy/splits/1/train": [0, 1],
        "toy/splits/1/val": [2],
        "toy/splits/1/test": np.arange(3, N),
        "toy/perturbations/evasion/gcn/split_1/budget_2": np.array([(0, 1), (3, 9)]),
    }
    of_file = {f"toy/dataset/{part}": array for part, array in changed.items()}
    save(folder / "unit_test.npz", arrays, of_file)


def write_prognn(folder: Path, **split: Any) -> None:
    raw = raw_graph()
    arrays = csr_parts(raw["adjacency"], "adj")
    arrays |= csr_parts(sp.csr_matrix(raw["features"] > 0), "attr")
    np.savez(folder / "toy.npz", labels=raw["labels"], **arrays)
    (folder / "toy_prognn_splits.json").write_text(json.dumps(SPLIT | split))


@dataclass(frozen=True)
class Layout:
    """A layout of files: how to write them, and what reads them."""

    write: Callable[..., object]
    reader: Callable[..., Data]
    names: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    path: str = "."

    def read(self, root: Path | str, **options: Any) -> Data:
        files: dict[str, Any] = {name: {} for name in self.names}
        folder = DatasetFolder(root, self.path, files, download=False)
        return self.reader(folder, *self.arguments, **options)


PLANETOID = tuple(f"ind.pubmed.{part}" for part in PARTS)
GRB = Layout(write_grb, load_grb, tuple(f"{file}.npz" for file in FILES), path="grb-ring")
LAYOUTS = {
    "grb": GRB,
    "planetoid": Layout(write_planetoid_files, load_planetoid, PLANETOID, ("pubmed",)),
    "shchur": Layout(write_shchur, load_shchur, ("ring.npz",)),
    "heterophilous": Layout(write_heterophilous, load_heterophilous, ("toy.npz",), ("toy",)),
    "defense test": Layout(write_defense_test, load_defense_test, ("unit_test.npz",), ("toy",)),
    "prognn": Layout(write_prognn, load_prognn, ("toy.npz", "toy_prognn_splits.json"), ("toy",)),
}
NO_DATA = [None, b"<html>404</html>", b"\x80\x02cos\nsystem\n.", b"[1"]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        (name, file, content)
        for name, layout in LAYOUTS.items()
        for file, content in zip(layout.names, cycle(NO_DATA))
    ],
)
def test_a_file_that_is_missing_or_no_data_is_named(
    tmp_path: Path, name: str, file: str, content: bytes | None
) -> None:
    layout = LAYOUTS[name]
    layout.write(tmp_path)
    path = tmp_path / layout.path / file
    path.unlink() if content is None else path.write_bytes(content)
    assert refusal(layout.read, tmp_path).startswith(f"{path}: ")


GOOD = planetoid_parts()
UNFIT: dict[str, list[tuple[dict[str, Any], str]]] = {
    "planetoid": [
        ({"allx": GOOD["allx"].toarray()}, "cannot be read"),
        ({"allx": GOOD["allx"][:30]}, "cannot be read"),
        ({"test.index": [*range(40, 59), -1]}, "cannot be read"),
        ({"graph": {0: [60], 1: [0]}}, "cannot be read"),
        (planetoid_parts(known=8, tested=4), "12 nodes"),
    ],
    "shchur": [
        *[({key: None}, key) for key in shchur_arrays()],
        ({"adj_indices": np.full(len(EDGES), 20)}, "cannot be read"),
        ({"attr_shape": np.array([NUM_NODES, 2**60])}, "cannot be read"),
    ],
    "heterophilous": [
        *[({"edges": edges}, "edge") for edges in (None, ALONG + 1, ALONG[:, 0])],
        ({"node_labels": [0]}, "labels"),
    ],
    "defense test": [
        ({"adjacency": ALONG + 1}, "cannot be read"),
        ({"features": ALONG[0]}, "cannot be read"),
        ({"features": np.ones((2, 2))}, "cannot be read"),
    ],
    "prognn": [({"idx_val": None}, "val"), ({"idx_val": [0]}, "val"), ({"idx_test": ["a"]}, "")],
}


@pytest.mark.faults
@pytest.mark.filterwarnings("error", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "changed", "key"), [(name, *row) for name, rows in UNFIT.items() for row in rows]
)
def test_unfit_arrays_are_refused(
    tmp_path: Path, name: str, changed: dict[str, Any], key: str
) -> None:
    LAYOUTS[name].write(tmp_path, **changed)
    split = {"split": 1} if name == "defense test" else {}
    assert key in refusal(lambda path: LAYOUTS[name].read(path, **split), tmp_path)


@pytest.mark.parametrize("parts", [SPLITS, SPLITS[:3]])
@pytest.mark.parametrize("compressed", [True, False])
def test_a_folder_in_grb_layout_gives_the_graph_and_its_split(
    tmp_path: Path, compressed: bool, parts: tuple[str, ...]
) -> None:
    of_parts = {part: splits()[part] for part in parts}
    folder = write_grb(tmp_path, compressed=compressed, splits=of_parts)
    for graph in (GRB.read(tmp_path), load_custom(folder)):
        assert equal(graph, RING, *(f"index_{part}" for part in parts))
        assert {k for k in graph.to_dict() if k.startswith("index")} == {
            f"index_{p}" for p in parts
        }
    graph = GRB.read(str(tmp_path), split_seed=2)
    assert is_split_by_degree(graph, 2)
    assert graph.index_train.tolist() != RING.index_train.tolist()


@pytest.mark.parametrize("file", FILES[1:])
def test_a_missing_array_is_named(tmp_path: Path, file: str) -> None:
    path = write_grb(tmp_path) / f"{file}.npz"
    np.savez(path, arr_0=np.eye(NUM_NODES))
    key = "index_train" if file == "index" else "data"
    assert f"{path}: lacks the array {key}" in refusal(GRB.read, tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "gap"), [("pubmed", ()), ("citeseer", ()), ("citeseer", (563, 564, 571))]
)
def test_a_graph_of_planetoid_is_that_of_pyg_split_by_degree(
    tmp_path: Path, name: str, gap: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    # PyG takes 500 nodes for validation, so it needs as many.
    write_planetoid(tmp_path, name, **planetoid_parts(known=560, gap=gap))
    files = tuple(f"ind.{name}.{part}" for part in PARTS)
    graph = Layout(write_planetoid, load_planetoid, files, (name,)).read(tmp_path, split_seed=3)
    expected = read_planetoid_data(str(tmp_path), name)
    assert torch.equal(graph.x, expected.x)
    assert torch.equal(graph.y, expected.y)
    assert torch.equal(graph.edge_index, coalesce(expected.edge_index))
    assert graph.num_nodes == 580 + len(gap)
    assert not graph.x[list(gap)].any()
    assert is_split_by_degree(graph, 3)
    assert not caplog.records  # edges listed twice, and self-loops: that is how these files are


def test_word_counts_are_kept_and_edges_get_their_reverse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    write_shchur(tmp_path)
    graph, arrays = LAYOUTS["shchur"].read(tmp_path, split_seed=5), shchur_arrays()
    parts = tuple(arrays[f"attr_{part}"] for part in ("data", "indices", "indptr"))
    counts = sp.csr_array(parts, shape=tuple(arrays["attr_shape"])).toarray()
    assert counts.max() > 1
    assert np.array_equal(graph.x.numpy(), counts)
    assert graph.y.tolist() == [node % 4 for node in range(NUM_NODES)]
    row, col = symmetric(EDGES).nonzero()
    assert graph.edge_index.tolist() == [row.tolist(), col.tolist()]
    assert not caplog.records  # that is how these files are
    assert is_split_by_degree(graph, 5)


@pytest.mark.parametrize(
    "read", [LAYOUTS["shchur"].read, lambda path: load_custom(path / "ring.npz")]
)
def test_pickled_arrays_that_are_not_needed_are_not_unpickled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, read: Callable[[Path], Data]
) -> None:
    write_shchur(tmp_path)
    expected = LAYOUTS["shchur"].read(tmp_path)
    names = {"node_names": np.array(["a", "b"], object), "idx_to_node": {0: "a"}}
    write_shchur(tmp_path, **names, metadata=Bomb(tmp_path / "mark"))
    caplog.set_level("WARNING")
    assert equal(read(tmp_path), expected, *INDICES)
    assert not (tmp_path / "mark").exists()
    assert "not read: node_names, idx_to_node, metadata" in caplog.text


def test_a_heterophilous_graph_has_the_split_of_its_file(tmp_path: Path) -> None:
    write_heterophilous(tmp_path)
    masks = np.load(tmp_path / "toy.npz")["test_masks"]
    for split in (0, 9):
        graph = LAYOUTS["heterophilous"].read(tmp_path, split=split)
        assert torch.equal(graph.x, torch.eye(N))
        assert graph.edge_index.size(1) == 2 * len(ALONG)
        assert graph.index_test.tolist() == masks[split].nonzero()[0].tolist()
    for wrong in (10, -1, "a"):
        with pytest.raises(ConfigError, match=r"dataset\.source\.split"):
            LAYOUTS["heterophilous"].read(tmp_path, split=wrong)


def test_a_graph_of_the_defense_test_is_read(tmp_path: Path) -> None:
    write_defense_test(tmp_path)
    graph = LAYOUTS["defense test"].read(tmp_path, split=1)
    assert graph.x.argmax(1).tolist() == [i % 3 for i in range(N)]
    assert graph.edge_index.size(1) == 2 * len(ALONG)
    assert graph.index_test.tolist() == list(range(3, N))
    with pytest.raises(ConfigError, match=r"dataset\.source\.split=0: [^\n]* 1$"):
        LAYOUTS["defense test"].read(tmp_path)


def test_a_graph_of_prognn_is_that_of_its_files(tmp_path: Path) -> None:
    write_prognn(tmp_path)
    graph, raw = LAYOUTS["prognn"].read(tmp_path), raw_graph()
    assert torch.equal(graph.x.bool(), torch.from_numpy(raw["features"] > 0))
    assert graph.edge_index.size(1) == raw["adjacency"].nnz
    for key, nodes in SPLIT.items():
        assert graph[key.replace("idx", "index")].tolist() == sorted(nodes)


def test_each_node_of_grb_has_the_words_of_its_paper(tmp_path: Path) -> None:
    """Twelve of Planetoid's fifteen nodes, in its order, are GRB's."""
    omitted, parts = [2, 9, 13], planetoid_parts(known=10, tested=5)
    write_planetoid(tmp_path / "words", "toy", **parts | {"x": parts["allx"], "y": parts["ally"]})
    one_hot, words = np.zeros((15, 3)), np.zeros((15, 6), np.float32)
    for array, first, rest in ((one_hot, "ally", "ty"), (words, "allx", "tx")):
        known, tested = (sp.csr_array(parts[key]).toarray() for key in (first, rest))
        array[:10], array[parts["test.index"]] = known, tested
    kept = np.setdiff1d(np.arange(15), omitted)
    labels = one_hot[kept].argmax(1)
    index = {"train": np.arange(6), "val": np.arange(6, 9), "test": np.arange(9, N)}
    grb = write_grb(tmp_path, adjacency=symmetric(ALONG.tolist(), N), labels=labels, splits=index)

    def read() -> Data:
        folders = (
            DatasetFolder(path, ".", {file.name: {} for file in path.iterdir()}, download=False)
            for path in (grb, tmp_path / "words")
        )
        return load_grb_words(*folders, "toy", omitted)

    graph = read()
    np.testing.assert_array_equal(graph.x.numpy(), words[kept])
    assert graph.y.tolist() == labels.tolist()
    assert graph.edge_index.size(1) == 2 * (N - 1)
    assert graph.index_test.tolist() == [9, 10, 11]
    np.savez(grb / "labels.npz", data=1 - np.minimum(labels, 1))
    with pytest.raises(DataError, match=r"dataset\.source\.omitted"):
        read()


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
    found = statistics(datamodule)
    assert (found.nodes, found.edges) == SIZES[name]
    assert name == "minesweeper" or found.homophily < 0.35


CHANGED = {"cora": (253, 506, 760, 1013, 1267), "citeseer": (183, 366, 550, 733, 917)}


@pytest.mark.real_data
@pytest.mark.parametrize("name", CHANGED)
def test_poisoned_graphs_differ_in_a_share_of_the_edges(name: str) -> None:
    graph = open_dataset(f"prognn_{name}").graph
    folder = Path(os.environ["ROBUST_DIFFUSION_DATA"], "poisoning")
    for rate, changed in zip((0.05, 0.1, 0.15, 0.2, 0.25), CHANGED[name], strict=True):
        attack = GivenGraph(path=folder / f"{name}_meta_adj_{rate}.npz")
        victim = Victim(lambda *_: None, graph.x, graph.edge_index)
        task = Task(graph, torch.arange(graph.num_nodes), graph.y)
        spent = spent_budget(graph, attack(victim, task, Budget(), torch.Generator()))
        assert spent.added_edges + spent.removed_edges == changed
        assert changed == int(rate * graph.edge_index.size(1) // 2) or name == "citeseer"
