"""Pickles, read as data: names of numbers and lists are admitted, and no others."""

import io
import pickle
import pickletools
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from robust_diffusion.data.files import reading, require, sparse_matrix


def read_pickle(path: Path) -> Any:
    """Read a pickle of a numpy array, a scipy CSR or COO matrix, or a dictionary of lists.

    Neither numpy's nor scipy's own unpickling is used: their arrays can be made to point anywhere
    in memory. What the pickle says of an array or a matrix is put together here. A matrix comes
    back as CSR; entries that COO lists twice are added up.

    Raises:
        DataError: It is missing, damaged, or names anything else; nothing of it is run.
    """
    require(path)
    with reading(path):
        content = path.read_bytes()
        for opcode, argument, _ in pickletools.genops(content):
            # The unpickler makes room for any number of memos that a few bytes announce.
            if opcode.name.endswith("PUT") and argument >= len(content):  # type: ignore[operator]
                raise pickle.UnpicklingError(f"it announces {argument} memos")
        stored = _DataUnpickler(io.BytesIO(content), encoding="latin1").load()
        if isinstance(stored, _StoredArray):
            return stored.value
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
    """A class that a pickle can make instances of, but not change."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"it changes the type {cls.__name__}")


class _StoredDtype(metaclass=_Sealed):
    """Stands in for `numpy.dtype`: booleans, integers and floats."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[biuf]\d{1,2}", code):
            raise pickle.UnpicklingError(f"it holds values of type {code}")
        self.value = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.value = self.value.newbyteorder(state[1])


class _StoredArray(metaclass=_Sealed):
    """Stands in for `numpy.ndarray` and for the function that makes an empty one."""

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        flat = np.frombuffer(content, dtype.value)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _StoredMatrix(metaclass=_Sealed):
    """Stands in for `scipy.sparse.csr_matrix`."""


class _StoredCoordinates(_StoredMatrix):
    """Stands in for `scipy.sparse.coo_matrix`."""


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _StoredArray,
    ("numpy._core.multiarray", "_reconstruct"): _StoredArray,
    ("numpy", "ndarray"): _StoredArray,
    ("numpy", "dtype"): _StoredDtype,
    ("scipy.sparse.csr", "csr_matrix"): _StoredMatrix,
    ("scipy.sparse._csr", "csr_matrix"): _StoredMatrix,
    ("scipy.sparse.coo", "coo_matrix"): _StoredCoordinates,
    ("scipy.sparse._coo", "coo_matrix"): _StoredCoordinates,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _DataUnpickler(pickle.Unpickler):
    """Admits the types that Planetoid's and GRB's files are made of, by their old and new names."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not data") from None
