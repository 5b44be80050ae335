import copyreg
import io
import pickle
import struct
import zipfile
from collections import defaultdict
from collections.abc import Callable
from itertools import cycle
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
from tests.pairs import pairs

READERS: list[Read] = [read_npz, read_sparse, read_pickle, read_torch]


@pytest.mark.parametrize(
    ("kind", "array"), list(zip(["csr", "csc", "coo", "bsr", "dia"], cycle([True, False])))
)
def test_every_sparse_format_becomes_csr(tmp_path: Path, kind: str, array: bool) -> None:
    stored = symmetric(EDGES).asformat(kind)
    sp.save_npz(tmp_path / "a.npz", sp.coo_array(stored).asformat(kind) if array else stored)
    read = read_sparse(tmp_path / "a.npz")
    assert isinstance(read, sp.csr_array)
    assert np.array_equal(read.toarray(), symmetric(EDGES).toarray())


@pytest.mark.parametrize(
    "change",
    [
        {"first": np.array([0, -1])},
        {"first": np.array([0.5, 1])},
        {"second": np.array([0, 2, 1])},
        {"second": np.array([0, 1])},
        {"shape": (2**70, 2)},
        {"shape": np.array([2, np.nan])},
        {"data": np.array(["1", "2"])},
        {"data": np.array([1, 2], dtype=object)},
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


def zipped(content: bytes, method: int = 0) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.npy", content)
    made = bytearray(stream.getvalue())
    made[made.index(b"PK\x01\x02") + 10] = method  # of compression
    return bytes(made)


BAD = {
    "empty": b"",
    "web page": b"<html><body>404</body></html>",
    "magic number alone": b"PK\x03\x04",
    "npy": npy(),
    "header alone": b"\x80\x02",
    "no end": b"\x80\x02K\x01K\x02",
    "marks": b"(" * 10**6,
    "no array in it": zipped(b"text"),
    "compressed in an unknown way": zipped(npy(), method=97),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_such_file_is_refused(tmp_path: Path, read: Read, content: bytes) -> None:
    refusal(read, written(tmp_path, content))
    assert "not found" in refusal(read, tmp_path / "nothing")
    assert "not found" in refusal(read, tmp_path)


def bombs(mark: Path) -> dict[str, tuple[Read, Callable[[Path], object], Callable[[Path], object]]]:
    """A reader, what writes a file that runs code, and what would run it."""
    bomb = Bomb(mark)
    arrays = dict(np.load(io.BytesIO(zipped_matrix())))

    def torch_file(held: object, *, zipped: bool) -> Callable[[Path], object]:
        return lambda p: torch.save(held, p, _use_new_zipfile_serialization=zipped)

    def npz(key: str) -> Callable[[Path], object]:
        objects = {key: np.array([bomb], dtype=object)}
        return lambda p: np.savez(p.open("wb"), **arrays | objects)

    def unpickled(path: Path) -> object:
        return pickle.loads(path.read_bytes())

    def loaded(path: Path) -> object:
        return torch.load(path, weights_only=False)

    return {
        **{
            f"pickle {read.__name__}": (
                *(read, lambda p, k=k: p.write_bytes(pickle.dumps(bomb, protocol=k)), unpickled),
            )
            for read, k in zip(READERS, [0, 2, 4, 5], strict=True)
        },
        **{
            f"array {key}": (read, npz(key), lambda p, k=key: np.load(p, allow_pickle=True)[k])
            for read, key in ((read_npz, "indices"), (read_sparse, "data"), (read_sparse, "format"))
        },
        "torch": (read_torch, torch_file({"x": torch.eye(2), "y": [bomb]}, zipped=True), loaded),
        "legacy torch": (read_torch, torch_file(bomb, zipped=False), loaded),
    }


def zipped_matrix() -> bytes:
    stream = io.BytesIO()
    sp.save_npz(stream, symmetric(EDGES))
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", bombs(Path("mark")))
def test_objects_are_refused_and_not_run(tmp_path: Path, name: str) -> None:
    path, mark = tmp_path / "a", tmp_path / "mark"
    read, write, run = bombs(mark)[name]
    write(path)
    refusal(read, path)
    assert not mark.exists()
    run(path)
    assert mark.exists()


def pt_bytes(zipped: bool) -> bytes:
    stream = io.BytesIO()
    content = {"x": torch.arange(12.0).reshape(4, 3), "y": torch.arange(4)}
    torch.save(content, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


PARTS = planetoid_parts()
SEEDS: dict[str, tuple[Read, bytes]] = {
    "npz": (read_npz, zipped(npy())),
    "matrix": (read_pickle, python2_pickle(PARTS["tx"])),
    "labels": (read_pickle, python2_pickle(PARTS["ty"])),
    "graph": (read_pickle, python2_pickle(PARTS["graph"])),
    "zip": (read_torch, pt_bytes(zipped=True)),
    "legacy": (read_torch, pt_bytes(zipped=False)),
}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=80)
@given(name=st.sampled_from(sorted(SEEDS)), flips=FLIPS, cut=CUT)
def test_damaged_files_are_refused_or_hold_data(
    name: str, flips: list[tuple[int, int]], cut: int | None
) -> None:
    read, good = SEEDS[name]
    check_reads_data(read, damaged(good, flips, cut))


@pytest.mark.parametrize(
    ("dtype", "shape", "order"),
    pairs(["?", ">i8", "|u1", "<f4", "<f2", ">f8"], [(6,), (2, 3), (0, 3), ()], ["C", "F"]),
)
def test_pickled_arrays_of_every_type_are_read(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], order: Any
) -> None:
    values = np.arange(6)[: int(np.prod(shape))].reshape(shape)
    array = np.asarray(values.astype(dtype), order=order)
    read = read_pickle(written(tmp_path, python2_pickle(array)))
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("cls", [sp.csr_matrix, sp.csr_array, sp.coo_matrix, sp.coo_array])
def test_sparse_matrices_are_read_and_coordinates_added_up(
    tmp_path: Path, cls: type, old: bool
) -> None:
    matrix = cls((np.ones(3, np.float32), ([0, 1, 1], [2, 0, 0])), shape=(2, 3))
    if old and "coords" in vars(matrix):  # as scipy before 1.13 kept them
        row, col = matrix.__dict__.pop("coords")
        matrix.__dict__ |= {"row": row, "col": col}
    read = read_pickle(written(tmp_path, pickle.dumps(matrix)))
    assert isinstance(read, sp.csr_array)
    assert read.toarray().tolist() == [[0, 0, 1], [2, 0, 0]]


def call(module: str, name: str, *arguments: object) -> bytes:
    """The opcodes that call a function; without a header and an end."""
    given = pickle.dumps(arguments, protocol=2)[2:-1]
    return f"c{module}\n{name}\n".encode() + given + b"R"


TOUCH: list[tuple[Any, ...]] = [
    ("os", "system", "touch mark"),
    ("builtins", "exec", "open('mark', 'w').close()"),
    ("numpy", "memmap", "mark", "u1", "w+", 0, 8),
    ("__builtin__", "eval", "open('mark', 'w').close()"),
]
NEVER: list[tuple[Any, ...]] = [  # the neighbours of what is admitted
    *(("numpy", "load", "a"), ("numpy", "ndarray.tofile"), ("numpy.core.multiarray", "scalar")),
    *(("scipy.sparse.csr", "csr_array"), ("builtins", "list.append"), ("__main__", "list")),
]


def array_state(content: bytes) -> bytes:
    """An array whose values are what the opcodes leave on the stack."""
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    dtype = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4K\x00K\x01\x87R"
    return start + b"(K\x01K\x01\x85" + dtype + b"\x89" + content + b"tb"


POSITIONS: dict[str, Callable[[bytes], bytes]] = {
    "after a good value": lambda code: b"K\x010" + code,
    "in a list": lambda code: b"]" + code + b"a",
    "in a list of a dictionary": lambda code: b"}K\x00](" + code + b"es",
    "as a key": lambda code: b"}" + code + b"]s",
    "as a default": lambda code: b"ccollections\ndefaultdict\n" + code + b"\x85R",
    "as an argument of list": lambda code: b"c__builtin__\nlist\n" + code + b"\x85R",
    "as a type": lambda code: b"cnumpy\ndtype\n" + code + b"\x85R",
    "as values": array_state,
    "in the state of a matrix": lambda code: (
        b"cscipy.sparse.csr\ncsr_matrix\n)\x81}X\x04\x00\x00\x00data" + code + b"sb"
    ),
}


def text(value: str) -> bytes:
    return b"X" + struct.pack("<i", len(value)) + value.encode()


NAMES = [
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cscipy.sparse.csr\ncsr_matrix\n",
    b"ccollections\ndefaultdict\n",
    b"c__builtin__\nlist\n",
]
SPOILT = [b"N}" + text("spoilt") + b"K\x01s\x86b", b"}" + text("spoilt") + b"K\x01sb"]


def forged(code: str) -> bytes:
    """An array whose bytes numpy would take for values of a type, such as addresses of objects."""
    dtype = b"cnumpy\ndtype\n" + text(code) + b"K\x00K\x01\x87R"
    flags = b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    return start + b"(K\x01K\x01\x85" + dtype + flags + b"\x89C\x08AAAAAAAAtb"


REFUSED = {
    **{".".join(payload[:2]): call(*payload) for payload in [*TOUCH, *NEVER]},
    **{place: wrap(call(*load)) for (place, wrap), load in zip(POSITIONS.items(), cycle(TOUCH))},
    "INST": b"(" + text("touch mark") + b"ios\nsystem\n",
    "OBJ": b"(cos\nsystem\n" + text("touch mark") + b"o",
    "STACK_GLOBAL": text("os") + text("system") + b"\x93" + text("touch mark") + b"\x85R",
    "EXT": b"\x82\x01" + text("touch mark") + b"\x85R",
    "PERSID": b"Pos.system\n",
    **{f"changed {name!r}": name + state for name, state in zip(NAMES, cycle(SPOILT))},
    **{
        f"array of {code}": forged(code) for code in ("O8", "S8", "V8", "c8", "M8[ns]", "f8,f8", "")
    },
    "array of its own bytes": b"cnumpy\nndarray\nK\x01\x85cnumpy\ndtype\n"
    + text("O8")
    + b"K\x00K\x01\x87RC\x08AAAAAAAA\x87R",
    **{
        f"values {of!r}": array_state(of)
        for of in (b"C\x03abc", b"C\x08abcdefgh", b"N", b"K\x01", b"]", text("\u20ac"))
    },
    # A few bytes that would take all memory.
    "memos": b"]r\xff\xff\xff\x7f",
    "memos as text": b"]p2000000000\n",
}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_a_malicious_pickle_is_refused_and_changes_nothing(tmp_path: Path, code: bytes) -> None:
    copyreg.add_extension("os", "system", 1)
    try:
        refusal(read_pickle, written(tmp_path, b"\x80\x04" + code + b"."))
    finally:
        copyreg.remove_extension("os", "system", 1)
    assert {file.name for file in tmp_path.iterdir()} == {"file"}
    for kind in (sp.csr_matrix, sp.csr_array, np.ndarray, np.dtype, defaultdict, list):
        assert not hasattr(kind, "spoilt")
    (tmp_path / "good").write_bytes(python2_pickle(PARTS["allx"]))
    assert not hasattr(read_pickle(tmp_path / "good"), "spoilt")


OPCODES = [bytes([code]) for code in b"()]}ubtsaeqRibo\x81\x85\x86\x87\x88\x89NK.020"]
VALUES = [text(v) for v in ("f4", "i8", "<", "data", "_shape", "value", "__class__", "")]


@settings(max_examples=80)
@given(code=st.lists(st.sampled_from(OPCODES + NAMES + VALUES), max_size=30))
def test_any_program_is_refused_or_gives_data(code: list[bytes]) -> None:
    check_reads_data(read_pickle, b"\x80\x03" + b"".join(code) + b".")
