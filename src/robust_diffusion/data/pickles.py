"""Reader of pickles as plain data, which only admits types of arrays, matrices and lists."""

import io
import pickle
import pickletools
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from robust_diffusion.data.download import require
from robust_diffusion.data.files import reading, sparse_matrix


def read_pickle(path: Path) -> Any:
    """Read a pickle of a numpy array, a scipy CSR or COO matrix, or a dictionary of lists.

    Unpickling by numpy or scipy is avoided, since their arrays can be made to point anywhere in
    memory; arrays and matrices are assembled here from the content of the pickle. A matrix is
    returned as CSR, and repeated entries of COO are added up.

    Raises:
        DataError: The file is missing, damaged, or names any other type; no code in it is executed.
    """
    require(path)
    with reading(path):
        return _plain(_loaded(path.read_bytes()), path)


def _loaded(content: bytes) -> Any:
    for opcode, argument, _ in pickletools.genops(content):
        # The unpickler would allocate any number of memos that a few bytes announce.
        if opcode.name.endswith("PUT") and argument >= len(content):  # type: ignore[operator]
            raise pickle.UnpicklingError(f"it announces {argument} memos")
    return _DataUnpickler(io.BytesIO(content), encoding="latin1").load()


def _plain(stored: Any, path: Path) -> Any:
    """Assemble an array or a matrix from the content of a pickle."""
    if isinstance(stored, _StoredArray):
        if stored.value is None:
            raise pickle.UnpicklingError("it holds an array without values")
        return _plain(stored.value, path)
    if not isinstance(stored, _StoredMatrix):
        return stored
    state = vars(stored)
    kind, names = "csr", ("indices", "indptr")
    if isinstance(stored, _StoredCoordinates):
        kind, names = "coo", ("row", "col")
        if "coords" in state:  # of scipy 1.13 and later
            state |= dict(zip(names, state["coords"], strict=True))
    first, second = (state[name].value for name in names)
    return sparse_matrix(kind, state["data"].value, first, second, state["_shape"], where=path)


class _Sealed(type):
    """Metaclass of classes that a pickle can instantiate but not modify."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"it changes the type {cls.__name__}")


class _StoredDtype(metaclass=_Sealed):
    """Stand-in for `numpy.dtype`: booleans, integers and floats, and `None` for objects."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[biuf]\d{1,2}|O8?", code):
            raise pickle.UnpicklingError(f"it holds values of type {code}")
        self.value = None if code[0] == "O" else np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if self.value is not None:
            self.value = self.value.newbyteorder(state[1])


class _StoredArray(metaclass=_Sealed):
    """Stand-in for `numpy.ndarray` and for the function that creates an empty one.

    An array of objects may only wrap a single object.
    """

    def __init__(self, *_: object) -> None:
        self.value: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        if dtype.value is None:
            if not isinstance(content, list) or len(content) != 1:
                raise pickle.UnpicklingError("it holds several objects")
            self.value = content[0]
            return
        content = content.encode("latin1") if isinstance(content, str) else content
        flat = np.frombuffer(content, dtype.value)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _StoredMatrix(metaclass=_Sealed):
    """Stand-in for `scipy.sparse.csr_matrix`."""


class _StoredCoordinates(_StoredMatrix):
    """Stand-in for `scipy.sparse.coo_matrix`."""


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _StoredArray,
    ("numpy._core.multiarray", "_reconstruct"): _StoredArray,
    ("numpy", "ndarray"): _StoredArray,
    ("numpy", "dtype"): _StoredDtype,
    ("scipy.sparse.csr", "csr_matrix"): _StoredMatrix,
    ("scipy.sparse._csr", "csr_matrix"): _StoredMatrix,
    ("scipy.sparse._csr", "csr_array"): _StoredMatrix,
    ("scipy.sparse.coo", "coo_matrix"): _StoredCoordinates,
    ("scipy.sparse._coo", "coo_matrix"): _StoredCoordinates,
    ("scipy.sparse._coo", "coo_array"): _StoredCoordinates,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _DataUnpickler(pickle.Unpickler):
    """Unpickler that only admits the types in Planetoid's and GRB's files, by old and new names."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not data") from None
