import copyreg
import pickle
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.data.pickles import read_pickle
from tests.data.files import check_reads_data, planetoid_parts, python2_pickle, refusal, written


@pytest.mark.parametrize("write", [python2_pickle, pickle.dumps], ids=["python 2", "python 3"])
@pytest.mark.parametrize("part", ["allx", "ally", "graph"])
def test_what_planetoid_pickles_is_read(
    tmp_path: Path, part: str, write: Callable[[object], bytes]
) -> None:
    expected = planetoid_parts()[part]
    read = read_pickle(written(tmp_path, write(expected)))
    if part == "graph":
        assert read == expected
        return
    assert read.dtype == expected.dtype
    if part == "allx":
        assert isinstance(read, sp.csr_array)
        read, expected = read.toarray(), expected.toarray()
    assert np.array_equal(read, expected)


@pytest.mark.parametrize("dtype", ["?", "<i8", ">i8", "|u1", "<f4", ">f4", "<f2", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0, 3), ()])
def test_pickled_arrays_of_every_type_are_read(
    tmp_path: Path, dtype: str, order: Any, shape: tuple[int, ...]
) -> None:
    values = np.arange(6)[: int(np.prod(shape))].reshape(shape)
    array = np.asarray(values.astype(dtype), order=order)
    read = read_pickle(written(tmp_path, python2_pickle(array)))
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


@pytest.mark.parametrize("old", [False, True])
def test_coordinates_are_added_up(tmp_path: Path, old: bool) -> None:
    matrix = sp.coo_matrix((np.ones(3, np.float32), ([0, 1, 1], [2, 0, 0])), shape=(2, 3))
    if old:  # as scipy before 1.13 kept them
        row, col = matrix.__dict__.pop("coords")
        matrix.__dict__ |= {"row": row, "col": col}
    read = read_pickle(written(tmp_path, pickle.dumps(matrix)))
    assert isinstance(read, sp.csr_array)
    assert read.toarray().tolist() == [[0, 0, 1], [2, 0, 0]]


@pytest.mark.parametrize("place", [(0, 3), (2, 0), (-1, 0), (0.5, 0)])
def test_coordinates_outside_the_matrix_are_refused(
    tmp_path: Path, place: tuple[float, float]
) -> None:
    matrix = sp.coo_matrix((np.ones(1), ([0], [0])), shape=(2, 3))
    matrix.coords = tuple(np.array([index]) for index in place)
    refusal(read_pickle, written(tmp_path, pickle.dumps(matrix)))


def call(module: str, name: str, *arguments: object) -> bytes:
    """The opcodes that call a function; without a header and an end."""
    given = pickle.dumps(arguments, protocol=2)[2:-1]
    return f"c{module}\n{name}\n".encode() + given + b"R"


TOUCH = [
    ("os", "system", "touch mark"),
    ("subprocess", "getoutput", "touch mark"),
    ("builtins", "eval", "open('mark', 'w').close()"),
    ("builtins", "exec", "open('mark', 'w').close()"),
    ("builtins", "open", "mark", "w"),
    ("io", "open", "mark", "w"),
    ("pathlib", "Path.touch", "mark"),
    ("numpy.testing", "rundocs", "mark"),
    ("numpy", "save", "mark", (1, 2)),
    ("numpy", "memmap", "mark", "u1", "w+", 0, 8),
    ("torch", "save", 1, "mark"),
    ("__builtin__", "eval", "open('mark', 'w').close()"),
]
RUNNABLE = [TOUCH[0], *TOUCH[2:6]]
NEVER: list[tuple[Any, ...]] = [
    *(("functools", "partial"), ("operator", "attrgetter", "a"), ("copyreg", "_reconstructor")),
    *(("_codecs", "encode", "a", "latin1"), ("numpy", "load", "a"), ("numpy", "ndarray.tofile")),
    *(("numpy.core.multiarray", "scalar"), ("scipy.sparse.csr", "csr_array")),
    *(("collections", "OrderedDict"), ("builtins", "list.append"), ("__main__", "list")),
]


def array_state(content: bytes) -> bytes:
    """An array whose values are what the opcodes leave on the stack."""
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    dtype = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4K\x00K\x01\x87R"
    return start + b"(K\x01K\x01\x85" + dtype + b"\x89" + content + b"tb"


POSITIONS: dict[str, Callable[[bytes], bytes]] = {
    "top": lambda code: code,
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


@pytest.mark.parametrize("payload", [*TOUCH, *NEVER], ids=lambda p: ".".join(p[:2]))
@pytest.mark.parametrize("place", POSITIONS.values(), ids=POSITIONS)
def test_a_malicious_pickle_is_refused_and_not_run(
    tmp_path: Path, payload: tuple[Any, ...], place: Callable[[bytes], bytes]
) -> None:
    path = written(tmp_path, b"\x80\x03" + place(call(*payload)) + b".")
    assert f"{payload[0]}.{payload[1]}" in refusal(read_pickle, path)
    assert {file.name for file in tmp_path.iterdir()} == {"file"}
    if payload in RUNNABLE and place is POSITIONS["top"]:
        pickle.loads(path.read_bytes())
        assert (tmp_path / "mark").exists()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<i", len(value)) + value.encode()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(b"(" + text("touch mark") + b"ios\nsystem\n", id="INST"),
        pytest.param(b"(cos\nsystem\n" + text("touch mark") + b"o", id="OBJ"),
        pytest.param(text("os") + text("system") + b"\x93" + text("touch mark") + b"\x85R", id="4"),
        pytest.param(b"\x82\x01" + text("touch mark") + b"\x85R", id="EXT"),
        pytest.param(b"Pos.system\n", id="PERSID"),
    ],
)
def test_other_ways_to_name_a_function(tmp_path: Path, code: bytes) -> None:
    copyreg.add_extension("os", "system", 1)
    try:
        refusal(read_pickle, written(tmp_path, b"\x80\x04" + code + b"."))
    finally:
        copyreg.remove_extension("os", "system", 1)
    assert not (tmp_path / "mark").exists()


NAMES = [
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cscipy.sparse.csr\ncsr_matrix\n",
    b"ccollections\ndefaultdict\n",
    b"c__builtin__\nlist\n",
]
SLOTS = b"N}" + text("spoilt") + b"K\x01s\x86b"
ATTRIBUTES = b"}" + text("spoilt") + b"K\x01sb"


@pytest.mark.parametrize("state", [SLOTS, ATTRIBUTES], ids=["slots", "attributes"])
@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_cannot_change_a_type(tmp_path: Path, name: bytes, state: bytes) -> None:
    path = written(tmp_path, b"\x80\x02" + name + state + b".")
    refusal(read_pickle, path)
    for kind in (sp.csr_matrix, sp.csr_array, np.ndarray, np.dtype, defaultdict, list):
        assert not hasattr(kind, "spoilt")
    (tmp_path / "good").write_bytes(python2_pickle(planetoid_parts()["allx"]))
    assert not hasattr(read_pickle(tmp_path / "good"), "spoilt")


@pytest.mark.parametrize("code", ["O8", "O", "S8", "U2", "V8", "c8", "M8[ns]", "i3", "f8,f8", ""])
def test_values_that_are_no_real_numbers_are_refused(tmp_path: Path, code: str) -> None:
    # Objects above all: numpy can be made to take any bytes for the addresses of objects.
    dtype = b"cnumpy\ndtype\n" + text(code) + b"K\x00K\x01\x87R"
    direct = b"cnumpy\nndarray\nK\x01\x85" + dtype + b"C\x08AAAAAAAA\x87R"
    flags = b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    forged = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
        b"(K\x01K\x01\x85" + dtype + flags + b"\x89C\x08AAAAAAAAtb"
    )
    for content in (direct, forged):
        refusal(read_pickle, written(tmp_path, b"\x80\x03" + content + b"."))


BROKEN = {
    **{
        f"values {of!r}": b"\x80\x03" + array_state(of) + b"."
        for of in (b"C\x03abc", b"C\x08abcdefgh", b"N", b"K\x01", b"]", text("\u20ac"))
    },
    # A few bytes that would take all memory.
    "memos": b"\x80\x02]r\xff\xff\xff\x7f.",
    "memos as text": b"\x80\x02]p2000000000\n.",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    refusal(read_pickle, written(tmp_path, content))


OPCODES = [bytes([code]) for code in b"()]}ubtsaeqRibo\x81\x85\x86\x87\x88\x89NK.020"]
VALUES = [text(v) for v in ("f4", "i8", "<", "data", "_shape", "value", "__class__", "")]


@settings(max_examples=150)
@given(code=st.lists(st.sampled_from(OPCODES + NAMES + VALUES), max_size=30))
def test_any_program_is_refused_or_gives_data(code: list[bytes]) -> None:
    check_reads_data(read_pickle, b"\x80\x03" + b"".join(code) + b".")
