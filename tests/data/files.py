"""Small graphs as raw arrays and in the layouts of files, and files that must be refused."""

import io
import pickle
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from robust_diffusion.errors import DataError

Read = Callable[[Path], Any]

NUM_NODES = 20
# A ring with two chords.
EDGES = sorted({(u, (u + 1) % NUM_NODES) for u in range(NUM_NODES)} | {(0, 10), (5, 15)})
FILES = ("adj", "features", "labels", "index")


def symmetric(edges: list[tuple[int, int]], num_nodes: int = NUM_NODES) -> sp.csr_matrix:
    """Adjacency matrix with each edge in both directions."""
    row, col = np.array(edges).T
    half = sp.coo_matrix((np.ones(len(edges)), (row, col)), shape=(num_nodes, num_nodes))
    return ((half + half.T) > 0).astype(np.float32).tocsr()


def raw_graph(**changes: Any) -> dict[str, Any]:
    """Arguments of `build_graph` for a good graph, some of them replaced."""
    features = np.random.default_rng(0).normal(size=(NUM_NODES, 3))
    return {
        "adjacency": symmetric(EDGES),
        "features": features,
        "labels": np.arange(NUM_NODES) % 4,
        "splits": splits(),
    } | changes


def splits(**changes: Any) -> dict[str, Any]:
    """A good split, some of its parts replaced."""
    return {
        "train": np.arange(8),
        "val": np.arange(8, 11),
        "test": np.arange(11, 20),
        "test_easy": np.arange(11, 14),
        "test_medium": np.arange(14, 17),
        "test_hard": np.arange(17, 20),
    } | changes


def write_grb(root: Path, *, name: str = "ring", compressed: bool = True, **changes: Any) -> Path:
    """Write a graph to `<root>/grb-<name>/` and return that folder."""
    graph = raw_graph(**changes)
    folder = root / f"grb-{name}"
    folder.mkdir(parents=True)
    save = np.savez_compressed if compressed else np.savez
    sp.save_npz(folder / "adj.npz", graph["adjacency"], compressed=compressed)
    save(folder / "features.npz", data=graph["features"])
    save(folder / "labels.npz", data=graph["labels"])
    index = {f"index_{key}": nodes for key, nodes in graph["splits"].items()}
    save(folder / "index.npz", **index)
    return folder


FLIPS = st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=4)
CUT = st.none() | st.integers(0, 10**4)


def damaged(content: bytes, flips: list[tuple[int, int]], cut: int | None) -> bytes:
    """The content with some bytes replaced, and cut short."""
    changed = bytearray(content)
    for position, value in flips:
        changed[position % len(changed)] = value
    return bytes(changed if cut is None else changed[: cut % len(changed)])


def refusal(read: Read, path: Path) -> str:
    """The error of a reader, in one line that begins with the path."""
    with pytest.raises(DataError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    return message


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


def check_reads_data(read: Read, content: bytes) -> None:
    """Data or a `DataError`, and no other file."""
    with TemporaryDirectory() as folder:
        path = written(Path(folder), content)
        try:
            read(path)
        except DataError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017 - damage need not raise
            assert "\n" not in str(error)  # noqa: PT017
        assert [file.name for file in Path(folder).iterdir()] == ["file"]


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes bytes as Python 2 wrote its `str`."""

    dispatch = pickle._Pickler.dispatch.copy()  # type: ignore[attr-defined]

    def save_bytes(self, obj: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(obj)) + obj)

    dispatch[bytes] = save_bytes


def python2_pickle(value: object) -> bytes:
    """A pickle as Python 2 and the numpy and scipy of its time wrote it, which Planetoid's are."""
    stream = io.BytesIO()
    _Python2Pickler(stream, protocol=2).dump(value)
    content = stream.getvalue()
    content = content.replace(b"cnumpy._core.", b"cnumpy.core.")
    return content.replace(b"cscipy.sparse._csr", b"cscipy.sparse.csr")


def planetoid_parts(
    *, known: int = 40, tested: int = 20, gap: tuple[int, ...] = (), seed: int = 0
) -> dict[str, Any]:
    """The contents of `ind.*`: 3 classes, 6 features; no file has a row of the nodes in `gap`."""
    generator = np.random.default_rng(seed)
    n = known + tested + len(gap)
    index = [node for node in range(known, n) if node not in gap]
    features = (generator.random((known + tested, 6)) < 0.4) * generator.random((known + tested, 6))
    x = sp.csr_matrix(features.astype(np.float32))
    y = np.eye(3, dtype=np.int32)[generator.integers(0, 3, known + tested)]
    graph: dict[int, list[int]] = defaultdict(list)
    for u, v in generator.integers(0, n, (2 * n, 2)).tolist():
        graph[u].append(v)
        graph[v].append(u)
    graph[0] += [1, 1, 0]  # twice, and itself
    graph[1] += [0]
    return {
        "x": x[:10],
        "tx": x[known:],
        "allx": x[:known],
        "y": y[:10],
        "ty": y[known:],
        "ally": y[:known],
        "graph": graph,
        "test.index": generator.permutation(index),
    }


def write_planetoid(folder: Path, name: str, **parts: Any) -> Path:
    """Write `ind.<name>.*`; a part may be given as bytes. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in (planetoid_parts() | parts).items():
        if part == "test.index" and not isinstance(value, bytes):
            value = "".join(f"{node}\n" for node in value).encode()
        content = value if isinstance(value, bytes) else python2_pickle(value)
        (folder / f"ind.{name}.{part}").write_bytes(content)
    return folder


def csr_parts(matrix: sp.csr_matrix, kind: str) -> dict[str, Any]:
    return {
        f"{kind}_data": matrix.data,
        f"{kind}_indices": matrix.indices,
        f"{kind}_indptr": matrix.indptr,
        f"{kind}_shape": np.array(matrix.shape),
    }


def shchur_arrays(**changes: Any) -> dict[str, Any]:
    """The ring, its edges directed, with word counts and four classes."""
    row, col = np.array(EDGES).T
    directed = sp.csr_matrix((np.ones(len(EDGES), np.float32), (row, col)), (NUM_NODES, NUM_NODES))
    counts = sp.csr_matrix(np.random.default_rng(1).poisson(0.7, (NUM_NODES, 5)).astype(np.float32))
    arrays = csr_parts(directed, "adj") | csr_parts(counts, "attr")
    return arrays | {"labels": np.arange(NUM_NODES) % 4} | changes
