from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from robust_diffusion.data import DatasetFolder
from robust_diffusion.data.sources import load_grb
from robust_diffusion.data.sources import write_grb as write_grb_files
from robust_diffusion.data.split import degree_split
from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import DataError
from tests.data.files import (
    CUT,
    EDGES,
    FILES,
    FLIPS,
    NUM_NODES,
    damaged,
    raw_graph,
    refusal,
    splits,
    symmetric,
    write_grb,
)


def equal(a: Data, b: Data) -> bool:
    keys = ("x", "y", "edge_index", *(f"index_{name}" for name in SPLITS))
    return all(torch.equal(a[key], b[key]) for key in keys)


def load(root: str | Path, **options: Any) -> Data:
    files: dict[str, dict[str, Any]] = {f"{file}.npz": {} for file in FILES}
    return load_grb(DatasetFolder(root, "grb-ring", files), **options)


@pytest.mark.parametrize("compressed", [True, False])
def test_good_files_give_the_graph_and_a_split_can_be_drawn_anew(
    tmp_path: Path, compressed: bool
) -> None:
    write_grb(tmp_path, compressed=compressed)
    expected = build_graph(**raw_graph(), where=tmp_path)
    assert equal(load(tmp_path), expected)
    graph = load(str(tmp_path), split_seed=2)
    degree = torch.bincount(graph.edge_index[1], minlength=NUM_NODES).numpy()
    for name, index in degree_split(degree, 2).items():
        assert graph[f"index_{name}"].tolist() == index.tolist()
    assert graph.index_train.tolist() != expected.index_train.tolist()


@settings(max_examples=40)
@given(file=st.sampled_from(FILES), compressed=st.booleans(), flips=FLIPS, cut=CUT)
def test_random_damage_is_refused_or_harmless(
    file: str, compressed: bool, flips: list[tuple[int, int]], cut: int | None
) -> None:
    with TemporaryDirectory() as root:
        folder = write_grb(Path(root), compressed=compressed)
        path = folder / f"{file}.npz"
        path.write_bytes(damaged(path.read_bytes(), flips, cut))
        try:
            graph = load(root)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017 - damage need not raise
        else:
            assert equal(graph, build_graph(**raw_graph(), where=folder))


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_or_array_is_named(tmp_path: Path, file: str) -> None:
    path = write_grb(tmp_path) / f"{file}.npz"
    if file != "adj":
        np.savez(path, arr_0=np.eye(NUM_NODES))
        key = "index_train" if file == "index" else "data"
        assert f"{path}: lacks the array {key}" in refusal(load, tmp_path)
    path.unlink()
    assert f"{path}: not found" in refusal(load, tmp_path)


def test_bad_values_name_the_folder(tmp_path: Path) -> None:
    folder = write_grb(tmp_path, splits=splits(val=np.array([8, 99])))
    assert refusal(load, tmp_path).startswith(f"{folder}: index_val: names node 99")


@pytest.mark.parametrize("matrix_format", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("node", [-1, NUM_NODES, 10**8])
def test_edges_out_of_the_matrix_are_refused(tmp_path: Path, matrix_format: str, node: int) -> None:
    folder = write_grb(tmp_path)
    matrix = symmetric(EDGES).asformat(matrix_format)
    matrix.indices[3] = node
    sp.save_npz(folder / "adj.npz", matrix)
    assert f"{folder / 'adj.npz'}: cannot be read" in refusal(load, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("indptr", np.arange(NUM_NODES + 1)[::-1]),
        ("indptr", np.arange(NUM_NODES)),
        ("indices", np.full(2 * len(EDGES), 0.5)),  # of which scipy alone would cut off the half
        ("shape", np.array([NUM_NODES, -NUM_NODES])),
        ("shape", np.array([2**62, 2**62])),
        ("format", np.array("lil")),
        ("data", np.full(2 * len(EDGES), "1")),
    ],
)
def test_a_broken_matrix_is_refused(tmp_path: Path, key: str, value: np.ndarray) -> None:
    path = write_grb(tmp_path) / "adj.npz"
    with np.load(path) as file:
        arrays = dict(file) | {key: value}
    np.savez(path, **arrays)
    assert "grb-ring" in refusal(load, tmp_path)


def test_what_is_written_is_read_back_here_and_by_grb(tmp_path: Path) -> None:
    graph = build_graph(**raw_graph(), where=tmp_path)
    folder = tmp_path / "new" / "grb-ring"
    write_grb_files(graph, folder)
    assert equal(load(tmp_path / "new"), graph)
    adjacency = sp.load_npz(folder / "adj.npz")
    assert isinstance(adjacency, sp.csr_matrix)
    assert (adjacency != raw_graph()["adjacency"]).nnz == 0
    for name, expected in (("features", graph.x), ("labels", graph.y)):
        assert np.array_equal(np.load(folder / f"{name}.npz").get("data"), expected.numpy())
    index = np.load(folder / "index.npz")
    assert index.get("index_test_easy").tolist() == graph.index_test_easy.tolist()
