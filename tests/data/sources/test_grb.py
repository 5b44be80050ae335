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
    damage,
    raw_graph,
    splits,
    symmetric,
    write_grb,
)
from tests.data.reading import refusal


def equal(a: Data, b: Data) -> bool:
    keys = ("x", "y", "edge_index", *(f"index_{name}" for name in SPLITS))
    return all(torch.equal(a[key], b[key]) for key in keys)


def load(root: str | Path, name: str = "ring") -> Data:
    files: dict[str, dict[str, Any]] = {f"{file}.npz": {} for file in FILES}
    return load_grb(DatasetFolder(root, f"grb-{name}", files))


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("as_type", [str, Path])
def test_good_files_give_the_graph(tmp_path: Path, compressed: bool, as_type: type) -> None:
    write_grb(tmp_path, compressed=compressed)
    assert equal(load(as_type(tmp_path)), build_graph(**raw_graph(), where=tmp_path))


def test_a_split_can_be_drawn_anew(tmp_path: Path) -> None:
    write_grb(tmp_path)
    folder = DatasetFolder(tmp_path, "grb-ring", {f"{file}.npz": {} for file in FILES})
    graph = load_grb(folder, split_seed=2)
    degree = torch.bincount(graph.edge_index[1], minlength=NUM_NODES).numpy()
    for name, index in degree_split(degree, 2).items():
        assert graph[f"index_{name}"].tolist() == index.tolist()
    assert graph.index_train.tolist() != load(tmp_path).index_train.tolist()


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    path = write_grb(tmp_path) / f"{file}.npz"
    path.unlink()
    assert f"{path}: not found" in refusal(load, tmp_path)


@pytest.mark.parametrize(("position", "bit"), [(8, 1), (8, 64), (10, 1), (10, 6), (6, 255)])
def test_a_damaged_directory_of_the_archive_is_refused(
    tmp_path: Path, position: int, bit: int
) -> None:
    # Encrypted, strongly encrypted, unknown method, LZMA, a future version of zip.
    path = write_grb(tmp_path) / "features.npz"
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + position] ^= bit
    path.write_bytes(content)
    assert f"{path}: cannot be read" in refusal(load, tmp_path)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [("features", b"'<f8'", b"'<f4'"), ("index", b"(8,)", b"(7,)"), ("labels", b"<i8", b"<u8")],
)
def test_a_changed_array_header_is_refused(
    tmp_path: Path, file: str, before: bytes, after: bytes
) -> None:
    # numpy alone would read on, since it stops before the checksum.
    path = write_grb(tmp_path, compressed=False) / f"{file}.npz"
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, after, 1))
    assert "checksum" in refusal(load, tmp_path)


@settings(max_examples=60)
@given(file=st.sampled_from(FILES), compressed=st.booleans(), flips=FLIPS, cut=CUT)
def test_random_damage_is_refused_or_harmless(
    file: str, compressed: bool, flips: list[tuple[int, int]], cut: int | None
) -> None:
    with TemporaryDirectory() as root:
        folder = write_grb(Path(root), compressed=compressed)
        damage(folder / f"{file}.npz", flips, cut)
        try:
            graph = load(root)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017 - damage need not raise
        else:
            assert equal(graph, build_graph(**raw_graph(), where=folder))


@pytest.mark.parametrize("split", SPLITS)
def test_a_missing_split_is_named(tmp_path: Path, split: str) -> None:
    kept = {name: index for name, index in splits().items() if name != split}
    write_grb(tmp_path, splits=kept)
    assert f"index.npz: lacks the array index_{split}" in refusal(load, tmp_path)


@pytest.mark.parametrize("file", ["features", "labels"])
def test_a_missing_array_is_named(tmp_path: Path, file: str) -> None:
    np.savez(write_grb(tmp_path) / f"{file}.npz", arr_0=np.eye(NUM_NODES))
    assert f"{file}.npz: lacks the array data" in refusal(load, tmp_path)


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"features": np.full((NUM_NODES, 2), np.nan)}, "nan"),
        ({"labels": np.arange(NUM_NODES) + 1}, "label 20"),
        ({"splits": splits(val=np.array([8, 99]))}, "index_val names node 99"),
        ({"adjacency": sp.csr_matrix((3, 4))}, "(3, 4)"),
    ],
)
def test_bad_values_name_the_folder(tmp_path: Path, changes: dict[str, Any], value: str) -> None:
    folder = write_grb(tmp_path, **changes)
    message = refusal(load, tmp_path)
    assert message.startswith(f"{folder}: ")
    assert value in message


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


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    graph = build_graph(**raw_graph(), where=tmp_path)
    write_grb_files(graph, tmp_path / "new" / "grb-ring")
    assert equal(load(tmp_path / "new"), graph)


def test_grb_itself_would_read_what_is_written(tmp_path: Path) -> None:
    graph = build_graph(**raw_graph(), where=tmp_path)
    write_grb_files(graph, tmp_path)
    adjacency = sp.load_npz(tmp_path / "adj.npz")
    assert isinstance(adjacency, sp.csr_matrix)
    assert (adjacency != raw_graph()["adjacency"]).nnz == 0
    for name, expected in (("features", graph.x), ("labels", graph.y)):
        assert torch.equal(
            torch.from_numpy(np.load(tmp_path / f"{name}.npz").get("data")), expected
        )
    index = np.load(tmp_path / "index.npz")
    assert index.get("index_test_easy").tolist() == graph.index_test_easy.tolist()
