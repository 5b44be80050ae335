import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.data.files import read_npz, read_sparse, read_torch, sparse_matrix
from robust_diffusion.data.pickles import read_pickle
from robust_diffusion.errors import DataError
from tests.data.files import (
    CUT,
    EDGES,
    FLIPS,
    Bomb,
    Read,
    check_reads_data,
    damaged,
    planetoid_parts,
    python2_pickle,
    refusal,
    symmetric,
    written,
)

READERS: list[Read] = [read_npz, read_sparse, read_pickle, read_torch]


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("array", [True, False])
def test_every_sparse_format_becomes_csr(tmp_path: Path, kind: str, array: bool) -> None:
    stored = symmetric(EDGES).asformat(kind)
    sp.save_npz(tmp_path / "a.npz", sp.coo_array(stored).asformat(kind) if array else stored)
    read = read_sparse(tmp_path / "a.npz")
    assert isinstance(read, sp.csr_array)
    assert np.array_equal(read.toarray(), symmetric(EDGES).toarray())


@pytest.mark.parametrize(
    "change",
    [
        {"first": np.array([0, 9])},
        {"first": np.array([0, -1])},
        {"first": np.array([0.5, 1])},
        {"second": np.array([0, 2, 1])},
        {"second": np.array([0, 1])},
        {"shape": (2,)},
        {"shape": (2**70, 2)},
        {"shape": np.array([2, np.nan])},
        {"shape": 3},
        {"data": np.array(["1", "2"])},
        {"data": np.array([1, 2], dtype=object)},
        {"data": np.array([1j, 2])},
        {"data": np.eye(2)},
    ],
    ids=str,
)
def test_parts_that_make_no_matrix_are_refused(change: dict[str, Any]) -> None:
    good = {"data": np.array([1.0, 2.0]), "first": np.array([0, 1]), "shape": (2, 2)}
    good["second"] = np.array([0, 1, 2])
    assert sparse_matrix("csr", **good, where="f").toarray().tolist() == [[1, 0], [0, 2]]
    with pytest.raises(DataError, match=r"^f: "):
        sparse_matrix("csr", **good | change, where="f")


def npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(9))
    return stream.getvalue()


BAD = {
    "empty": b"",
    "web page": b"<html><body>404</body></html>",
    "magic number alone": b"PK\x03\x04",
    "npy": npy(),
    "header alone": b"\x80\x02",
    "no end": b"\x80\x02K\x01K\x02",
    "marks": b"(" * 10**6,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_such_file_is_refused(tmp_path: Path, read: Read, content: bytes) -> None:
    refusal(read, written(tmp_path, content))
    assert "not found" in refusal(read, tmp_path / "nothing")
    assert "not found" in refusal(read, tmp_path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_bare_pickle_is_refused_and_not_run(tmp_path: Path, read: Read, protocol: int) -> None:
    mark = tmp_path / "mark"
    path = written(tmp_path, pickle.dumps(Bomb(mark), protocol=protocol))
    refusal(read, path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists()


@pytest.mark.parametrize("read", [read_npz, read_sparse])
@pytest.mark.parametrize("key", ["data", "indices", "format", "_is_array"])
def test_arrays_of_objects_are_refused_and_not_run(tmp_path: Path, read: Read, key: str) -> None:
    path, mark = tmp_path / "a.npz", tmp_path / "mark"
    sp.save_npz(path, symmetric(EDGES))
    with np.load(path) as file:
        arrays = {key: np.array([Bomb(mark)], dtype=object), **dict(file)}
    arrays[key] = np.array([Bomb(mark)], dtype=object)
    np.savez(path, **arrays)
    refusal(read, path)
    assert not mark.exists()
    with np.load(path, allow_pickle=True) as file:
        file[key]
    assert mark.exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_objects_in_a_torch_file_never_run(tmp_path: Path, nested: bool, zipped: bool) -> None:
    path, mark = tmp_path / "a.pt", tmp_path / "mark"
    held = {"x": torch.eye(2), "y": [Bomb(mark)]} if nested else Bomb(mark)
    torch.save(held, path, _use_new_zipfile_serialization=zipped)
    refusal(read_torch, path)
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize("read", [read_npz, read_sparse, read_torch])
def test_a_flipped_bit_is_refused(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "a"
    values = np.arange(1000.0)
    with path.open("wb") as file:
        if read is read_torch:
            torch.save({"x": torch.from_numpy(values)}, file)
        else:
            sp.save_npz(file, sp.csr_array(values[None]), compressed=False)
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(500).tobytes()) + 7] ^= 64
    path.write_bytes(content)
    assert "checksum" in refusal(read, path)


def pt_bytes(zipped: bool) -> bytes:
    stream = io.BytesIO()
    content = {"x": torch.arange(12.0).reshape(4, 3), "y": torch.arange(4)}
    torch.save(content, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


PARTS = planetoid_parts()
SEEDS: dict[str, tuple[Read, bytes]] = {
    "matrix": (read_pickle, python2_pickle(PARTS["tx"])),
    "labels": (read_pickle, python2_pickle(PARTS["ty"])),
    "graph": (read_pickle, python2_pickle(PARTS["graph"])),
    "zip": (read_torch, pt_bytes(zipped=True)),
    "legacy": (read_torch, pt_bytes(zipped=False)),
}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150)
@given(name=st.sampled_from(sorted(SEEDS)), flips=FLIPS, cut=CUT)
def test_damaged_files_are_refused_or_hold_data(
    name: str, flips: list[tuple[int, int]], cut: int | None
) -> None:
    read, good = SEEDS[name]
    check_reads_data(read, damaged(good, flips, cut))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150)
@given(content=st.binary(max_size=300), read=st.sampled_from(READERS), zipped=st.booleans())
def test_any_bytes_are_refused_or_give_data(content: bytes, read: Read, zipped: bool) -> None:
    if zipped:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("data.npy", content)
        content = stream.getvalue()
    check_reads_data(read, content)
