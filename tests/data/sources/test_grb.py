import io
import os
import pickle
import shutil
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

from robust_diffusion.data import DatasetFolder, GraphDataModule
from robust_diffusion.data.download import LocalFolder
from robust_diffusion.data.sources import load_grb
from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import DataError
from tests.data.files import (
    EDGES,
    FILES,
    NUM_NODES,
    Bomb,
    raw_graph,
    splits,
    symmetric,
    write_grb,
)


def equal(a: Data, b: Data) -> bool:
    keys = ("x", "y", "edge_index", *(f"index_{name}" for name in SPLITS))
    return all(torch.equal(a[key], b[key]) for key in keys)


def load(root: str | Path, name: str = "ring") -> Data:
    files: dict[str, dict[str, Any]] = {f"{file}.npz": {} for file in FILES}
    return load_grb(DatasetFolder(root, f"grb-{name}", files))


def refusal(root: Path, name: str = "ring") -> str:
    """The one line with which the folder is refused."""
    with pytest.raises(DataError) as caught:
        load(root, name)
    message = str(caught.value)
    assert "\n" not in message
    assert f"grb-{name}" in message
    return message


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("as_text", [True, False])
def test_good_files_give_the_graph(tmp_path: Path, compressed: bool, as_text: bool) -> None:
    write_grb(tmp_path, compressed=compressed)
    graph = load(str(tmp_path) if as_text else tmp_path)
    assert equal(graph, build_graph(**raw_graph(), where=tmp_path))


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path, file: str) -> None:
    path = write_grb(tmp_path) / f"{file}.npz"
    path.unlink()
    message = refusal(tmp_path)
    assert str(path) in message
    assert "ROBUST_DIFFUSION_DATA" in message
    assert "paths.data_dir" in message


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "grb-nowhere" / "adj.npz") in refusal(tmp_path, "nowhere")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99])
def test_a_file_cut_short_is_refused(tmp_path: Path, file: str, share: float) -> None:
    path = write_grb(tmp_path) / f"{file}.npz"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert f"{path}: cannot be read" in refusal(tmp_path)


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(NUM_NODES))
    return buffer.getvalue()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"<!DOCTYPE html>\n<html><body>404\nNot Found</body></html>", id="web page"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"PK\x03\x04", id="magic number alone"),
        pytest.param(npy(), id="npy"),
        pytest.param(pickle.dumps({"data": [1]}), id="pickle"),
    ],
)
def test_what_is_no_npz_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    path = write_grb(tmp_path) / f"{file}.npz"
    path.write_bytes(content)
    assert f"{path}: cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(("position", "bit"), [(8, 1), (8, 64), (10, 1), (10, 6), (6, 255)])
def test_a_damaged_directory_of_the_archive_is_refused(
    tmp_path: Path, position: int, bit: int
) -> None:
    # Encrypted, strongly encrypted, unknown method, LZMA, a future version of zip.
    path = write_grb(tmp_path) / "features.npz"
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + position] ^= bit
    path.write_bytes(content)
    assert f"{path}: cannot be read" in refusal(tmp_path)


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
    assert "checksum" in refusal(tmp_path)


@settings(max_examples=60)
@given(
    file=st.sampled_from(FILES),
    compressed=st.booleans(),
    flips=st.lists(st.tuples(st.integers(0, 10**4), st.integers(1, 255)), max_size=3),
    cut=st.none() | st.integers(0, 10**4),
)
def test_random_damage_is_refused_or_harmless(
    good_folders: dict[bool, Path],
    file: str,
    compressed: bool,
    flips: list[tuple[int, int]],
    cut: int | None,
) -> None:
    with TemporaryDirectory() as root:
        folder = shutil.copytree(good_folders[compressed], Path(root) / "grb-ring")
        content = bytearray((folder / f"{file}.npz").read_bytes())
        for position, bits in flips:
            content[position % len(content)] ^= bits
        if cut is not None:
            content = content[: cut % len(content)]
        (folder / f"{file}.npz").write_bytes(content)
        try:
            graph = load(root)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017 - damage need not raise
        else:
            assert equal(graph, build_graph(**raw_graph(), where=folder))


@pytest.fixture(scope="module")
def good_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    root = tmp_path_factory.mktemp("good")
    return {
        compressed: write_grb(root / str(compressed), compressed=compressed)
        for compressed in (True, False)
    }


@pytest.mark.parametrize("split", SPLITS)
def test_a_missing_split_is_named(tmp_path: Path, split: str) -> None:
    folder = write_grb(tmp_path)
    kept = {f"index_{name}": index for name, index in splits().items() if name != split}
    np.savez(folder / "index.npz", **kept)
    assert f"index.npz: lacks the array index_{split}" in refusal(tmp_path)


@pytest.mark.parametrize("file", ["features", "labels"])
def test_a_missing_array_is_named(tmp_path: Path, file: str) -> None:
    folder = write_grb(tmp_path)
    np.savez(folder / f"{file}.npz", arr_0=np.eye(NUM_NODES))
    assert f"{file}.npz: lacks the array data" in refusal(tmp_path)


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
    message = refusal(tmp_path)
    assert message.startswith(f"{folder}: ")
    assert value in message


@pytest.mark.parametrize("matrix_format", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("node", [-1, NUM_NODES, 10**8])
def test_edges_out_of_the_matrix_are_refused(tmp_path: Path, matrix_format: str, node: int) -> None:
    folder = write_grb(tmp_path)
    matrix = symmetric(EDGES).asformat(matrix_format)
    matrix.indices[3] = node
    sp.save_npz(folder / "adj.npz", matrix)
    assert f"{folder / 'adj.npz'}: cannot be read" in refusal(tmp_path)


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
    assert "grb-ring" in refusal(tmp_path)


@pytest.mark.parametrize("file", FILES)
def test_pickled_content_is_refused_and_not_run(tmp_path: Path, file: str) -> None:
    path, mark = write_grb(tmp_path) / f"{file}.npz", tmp_path / "mark"
    with np.load(path) as content:
        arrays = dict(content)
    key = "index_train" if file == "index" else "data"
    arrays[key] = np.array([Bomb(mark)], dtype=object)
    np.savez(path, **arrays)
    assert f"{path}: cannot be read" in refusal(tmp_path)
    assert not mark.exists()
    with np.load(path, allow_pickle=True) as content:
        content[key]
    assert mark.exists()


@pytest.mark.parametrize("file", FILES)
def test_a_bare_pickle_is_refused_and_not_run(tmp_path: Path, file: str) -> None:
    path, mark = write_grb(tmp_path) / f"{file}.npz", tmp_path / "mark"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    assert f"{path}: cannot be read" in refusal(tmp_path)
    assert not mark.exists()
    np.load(path, allow_pickle=True)
    assert mark.exists()


@pytest.fixture(scope="module")
def cora() -> GraphDataModule:
    root = os.environ.get("ROBUST_DIFFUSION_DATA")
    if not root or not (Path(root) / "grb-cora").is_dir():
        pytest.skip("needs ROBUST_DIFFUSION_DATA to name a folder that holds grb-cora/")
    # As a local folder, which is left as it is: no hash is written beside the shared files.
    folder = LocalFolder(Path(root) / "grb-cora")
    return GraphDataModule(lambda: load_grb(folder), name="cora")


@pytest.mark.real_data
def test_cora_has_grb_size(cora: GraphDataModule) -> None:
    graph = cora.graph
    assert (graph.num_nodes, graph.num_edges) == (2680, 2 * 5148)
    assert (cora.num_features, cora.num_classes) == (302, 7)
    assert graph.is_undirected()
    assert not graph.has_self_loops()


@pytest.mark.real_data
def test_cora_is_normalised_to_the_printed_range(cora: GraphDataModule) -> None:
    x = cora.graph.x
    assert x.min().item() == pytest.approx(-0.9406, abs=5e-5)
    assert x.max().item() == pytest.approx(0.9430, abs=5e-5)


@pytest.mark.real_data
def test_cora_has_grb_split(cora: GraphDataModule) -> None:
    sizes = {name: cora.graph[f"index_{name}"].numel() for name in SPLITS}
    thirds = {"test_easy": 268, "test_medium": 268, "test_hard": 268}
    assert sizes == {"train": 1608, "val": 268, "test": 804, **thirds}
    assert cora.target_nodes.equal(cora.graph.index_test_easy)
