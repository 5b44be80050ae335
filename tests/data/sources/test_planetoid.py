import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import coalesce, degree

from robust_diffusion.data import DatasetFolder
from robust_diffusion.data.sources import load_planetoid
from robust_diffusion.data.sources.planetoid import PARTS
from robust_diffusion.data.split import degree_split
from tests.data.files import Bomb, planetoid_parts, write_planetoid
from tests.data.reading import refusal


def load(folder: Path, name: str = "pubmed", **options: Any) -> Data:
    files: dict[str, dict[str, Any]] = {f"ind.{name}.{part}": {} for part in PARTS}
    return load_planetoid(DatasetFolder(folder, ".", files), name, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "gap"), [("pubmed", ()), ("cora", ()), ("citeseer", ()), ("citeseer", (563, 564, 571))]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_reads_the_graph_that_pyg_reads(
    tmp_path: Path, name: str, gap: tuple[int, ...], seed: int
) -> None:
    # PyG takes 500 nodes for validation, so it needs as many.
    write_planetoid(tmp_path, name, **planetoid_parts(known=560, gap=gap, seed=seed))
    graph, expected = load(tmp_path, name), read_planetoid_data(str(tmp_path), name)
    assert torch.equal(graph.x, expected.x)
    assert torch.equal(graph.y, expected.y)
    assert torch.equal(graph.edge_index, coalesce(expected.edge_index))
    assert graph.num_nodes == 580 + len(gap)
    assert not graph.has_self_loops()
    assert not graph.x[list(gap)].any()


def test_is_split_by_degree(tmp_path: Path) -> None:
    write_planetoid(tmp_path, "pubmed")
    graph = load(tmp_path, split_seed=3)
    degrees = degree(graph.edge_index[0], graph.num_nodes).long().numpy()
    for name, index in degree_split(degrees, 3).items():
        assert graph[f"index_{name}"].tolist() == index.tolist()


def test_an_edge_listed_often_is_one_edge(tmp_path: Path) -> None:
    listed = {0: [1] * 300 + [0], 1: [], 2: [3] * 128, 3: [2] * 128}
    write_planetoid(tmp_path, "pubmed", graph=defaultdict(list, listed))
    assert load(tmp_path).edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_file_is_named(tmp_path: Path, part: str) -> None:
    path = write_planetoid(tmp_path, "pubmed") / f"ind.pubmed.{part}"
    path.unlink()
    assert f"{path}: not found" in refusal(load, tmp_path)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("content", [b"<html>404</html>", b"", b"\x80\x02cos\nsystem\n."])
def test_what_is_no_data_is_refused(tmp_path: Path, part: str, content: bytes) -> None:
    write_planetoid(tmp_path, "pubmed", **{part: content})
    assert f"ind.pubmed.{part}: cannot be read" in refusal(load, tmp_path)


@pytest.mark.parametrize("part", PARTS[:-1])
def test_a_pickle_that_names_functions_never_runs(tmp_path: Path, part: str) -> None:
    mark = tmp_path / "mark"
    bomb: object = {0: [1], 1: [0, Bomb(mark)]} if part == "graph" else Bomb(mark)
    write_planetoid(tmp_path, "pubmed", **{part: pickle.dumps(bomb)})
    assert "which is not data" in refusal(load, tmp_path)
    assert not mark.exists()
    pickle.loads((tmp_path / f"ind.pubmed.{part}").read_bytes())
    assert mark.exists()


GOOD = planetoid_parts()
HUGE = sp.csr_matrix((40, 6), dtype=np.float32)
HUGE._shape = (40, 2**60)
BEYOND = GOOD["allx"].copy()
BEYOND.indices[2] = 99

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "features an array": ({"allx": GOOD["allx"].toarray()}, "allx: holds no sparse matrix"),
    "features a list": ({"tx": [1, 2]}, "tx: holds no sparse matrix"),
    "features out of the matrix": ({"allx": BEYOND}, "allx: cannot be read"),
    "features too wide": ({"allx": HUGE}, "allx: cannot be read"),
    "features of another width": ({"tx": GOOD["tx"][:, :4]}, "differ in width"),
    "features too short": ({"allx": GOOD["allx"][:30]}, "do not follow 30 known"),
    "labels a matrix": ({"ally": GOOD["allx"]}, "ally: holds no matrix of one-hot labels"),
    "labels flat": ({"ty": GOOD["ty"].argmax(1)}, "ty: holds no matrix"),
    "labels twice": ({"ty": np.ones((20, 3), int)}, "ty: holds no matrix"),
    "labels none": ({"ally": np.zeros((40, 3), int)}, "ally: holds no matrix"),
    "labels NaN": ({"ally": np.full((40, 3), np.nan)}, "ally: holds no matrix"),
    "labels of another width": ({"ty": np.eye(4, dtype=int)[[0] * 20]}, "differ in width"),
    "labels too short": ({"ally": GOOD["ally"][:30]}, "differ in length"),
    "index one short": ({"test.index": range(40, 59)}, "19 test nodes"),
    "index from elsewhere": ({"test.index": range(41, 61)}, "from 41 do not"),
    "index twice": ({"test.index": [*range(40, 59), 40]}, "each test node once"),
    "index negative": ({"test.index": [*range(40, 59), -1]}, "each test node once"),
    "index in two columns": (
        {"test.index": b"".join(b"%d %d\n" % (i, i + 10) for i in range(40, 50))},
        "each test node once",
    ),
    "index words": ({"test.index": b"forty\n"}, "cannot be read"),
    "index with a huge gap": ({"test.index": [*range(40, 59), 10**15]}, f"names node {10**15}"),
    "index beyond int64": ({"test.index": [*range(40, 59), 2**70]}, "cannot be read"),
    "edges a list": ({"graph": [[1], [0]]}, "graph: cannot be read"),
    "edges numbers": ({"graph": {0: 1, 1: 0}}, "graph: cannot be read"),
    "edges words": ({"graph": {0: "11", 1: "00"}}, "graph: cannot be read"),
    "edges fractions": ({"graph": {0: [1.5], 1: [0]}}, "names nodes other than 0..59"),
    "edges beyond": ({"graph": {0: [60], 1: [0]}}, "names nodes other than 0..59"),
    "edges negative": ({"graph": {0: [-1], 1: [0]}}, "names nodes other than 0..59"),
    "edges huge": ({"graph": {0: [2**70], 1: [0]}}, "graph: cannot be read"),
    "edges ragged": ({"graph": {0: [[1], 2], 1: [0]}}, "graph: cannot be read"),
    "edges arrays": ({"graph": {0: np.array([1]), 1: np.array([0])}}, "graph: cannot be read"),
}


@pytest.mark.parametrize(("parts", "words"), BAD.values(), ids=BAD)
def test_files_that_do_not_fit_are_refused(
    tmp_path: Path, parts: dict[str, Any], words: str
) -> None:
    write_planetoid(tmp_path, "pubmed", **parts)
    assert words in refusal(load, tmp_path)


def test_a_small_file_cannot_list_a_huge_graph(tmp_path: Path) -> None:
    listed = list(range(60)) * 100
    write_planetoid(tmp_path, "pubmed", graph=dict.fromkeys(range(60), listed))
    assert "over and over" in refusal(load, tmp_path)


def test_a_graph_too_small_to_split_is_refused(tmp_path: Path) -> None:
    write_planetoid(tmp_path, "pubmed", **planetoid_parts(known=8, tested=4))
    assert "12 nodes, too few to split" in refusal(load, tmp_path)
