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
from tests.data.files import Bomb, planetoid_parts, refusal, write_planetoid


def load(folder: Path, name: str = "pubmed", **options: Any) -> Data:
    files: dict[str, dict[str, Any]] = {f"ind.{name}.{part}": {} for part in PARTS}
    return load_planetoid(DatasetFolder(folder, ".", files), name, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "gap"), [("pubmed", ()), ("cora", ()), ("citeseer", ()), ("citeseer", (563, 564, 571))]
)
def test_reads_the_graph_that_pyg_reads_and_splits_it_by_degree(
    tmp_path: Path, name: str, gap: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    # PyG takes 500 nodes for validation, so it needs as many.
    write_planetoid(tmp_path, name, **planetoid_parts(known=560, gap=gap))
    graph = load(tmp_path, name, split_seed=3)
    expected = read_planetoid_data(str(tmp_path), name)
    assert torch.equal(graph.x, expected.x)
    assert torch.equal(graph.y, expected.y)
    assert torch.equal(graph.edge_index, coalesce(expected.edge_index))
    assert graph.num_nodes == 580 + len(gap)
    assert not graph.x[list(gap)].any()
    degrees = degree(graph.edge_index[0], graph.num_nodes).long().numpy()
    for part, index in degree_split(degrees, 3).items():
        assert graph[f"index_{part}"].tolist() == index.tolist()
    assert not caplog.records  # edges listed twice, and self-loops: that is how these files are


def test_an_edge_listed_often_is_one_edge(tmp_path: Path) -> None:
    listed = {0: [1] * 300 + [0], 1: [], 2: [3] * 128, 3: [2] * 128}
    write_planetoid(tmp_path, "pubmed", graph=defaultdict(list, listed))
    assert load(tmp_path).edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("content", [None, b"<html>404</html>", b"", b"\x80\x02cos\nsystem\n."])
def test_a_missing_file_or_one_of_no_data_is_named(
    tmp_path: Path, part: str, content: bytes | None
) -> None:
    path = write_planetoid(tmp_path, "pubmed") / f"ind.pubmed.{part}"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert refusal(load, tmp_path).startswith(f"{path}: ")


@pytest.mark.parametrize("part", PARTS[:-1])
def test_a_pickle_that_names_functions_never_runs(tmp_path: Path, part: str) -> None:
    mark = tmp_path / "mark"
    bomb: object = {0: [1], 1: [0, Bomb(mark)]} if part == "graph" else Bomb(mark)
    write_planetoid(tmp_path, "pubmed", **{part: pickle.dumps(bomb)})
    assert f"ind.pubmed.{part}: " in refusal(load, tmp_path)
    assert not mark.exists()


GOOD = planetoid_parts()
HUGE = sp.csr_matrix((40, 6), dtype=np.float32)
HUGE._shape = (40, 2**60)
BEYOND = GOOD["allx"].copy()
BEYOND.indices[2] = 99

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "features an array": ({"allx": GOOD["allx"].toarray()}, "allx: "),
    "features out of the matrix": ({"allx": BEYOND}, "allx: "),
    "features too wide": ({"allx": HUGE}, "allx: "),
    "features of another width": ({"tx": GOOD["tx"][:, :4]}, "tx"),
    "features too short": ({"allx": GOOD["allx"][:30]}, "allx"),
    "labels a matrix": ({"ally": GOOD["allx"]}, "ally: "),
    "labels flat": ({"ty": GOOD["ty"].argmax(1)}, "ty: "),
    "labels twice": ({"ty": np.ones((20, 3), int)}, "ty: "),
    "labels NaN": ({"ally": np.full((40, 3), np.nan)}, "ally: "),
    "labels of another width": ({"ty": np.eye(4, dtype=int)[[0] * 20]}, "ty"),
    "labels too short": ({"ally": GOOD["ally"][:30]}, "ally"),
    "index one short": ({"test.index": range(40, 59)}, "test.index"),
    "index from elsewhere": ({"test.index": range(41, 61)}, "test.index"),
    "index twice": ({"test.index": [*range(40, 59), 40]}, "test.index: "),
    "index negative": ({"test.index": [*range(40, 59), -1]}, "test.index: "),
    "index words": ({"test.index": b"forty\n"}, "test.index: "),
    "index with a huge gap": ({"test.index": [*range(40, 59), 10**15]}, "test.index"),
    "index beyond int64": ({"test.index": [*range(40, 59), 2**70]}, "test.index: "),
    "edges a list": ({"graph": [[1], [0]]}, "graph: "),
    "edges numbers": ({"graph": {0: 1, 1: 0}}, "graph: "),
    "edges words": ({"graph": {0: "11", 1: "00"}}, "graph: "),
    "edges fractions": ({"graph": {0: [1.5], 1: [0]}}, "0..59"),
    "edges beyond": ({"graph": {0: [60], 1: [0]}}, "0..59"),
    "edges negative": ({"graph": {0: [-1], 1: [0]}}, "0..59"),
    "edges huge": ({"graph": {0: [2**70], 1: [0]}}, "graph: "),
    "edges ragged": ({"graph": {0: [[1], 2], 1: [0]}}, "graph: "),
    "edges over and over": ({"graph": dict.fromkeys(range(60), [*range(60)] * 99)}, "graph: "),
    "too small to split": (planetoid_parts(known=8, tested=4), "12 nodes"),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "key"), BAD.values(), ids=BAD)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, parts: dict[str, Any], key: str) -> None:
    write_planetoid(tmp_path, "pubmed", **parts)
    assert key in refusal(load, tmp_path)
