"""Readers of data files, which never execute code in them."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from robust_diffusion.data.download import check_archive, require
from robust_diffusion.errors import DataError

NUMBERS = "biuf"
"""Kinds of numpy types that are real numbers."""

TORCH_BEGINS = (b"PK", b"\x80\x02")
"""First bytes of a file of `torch.save`: a zip archive or, in its older formats, a pickle."""

TO_WRITE = "write it with torch.save(data.to_dict(), path), weights with model.state_dict()"


@contextmanager
def reading(where: str | Path, remedy: str = "fetch the file again") -> Iterator[None]:
    """Convert any error of a reader on damaged bytes to a `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{where}: cannot be read ({reason}); {remedy}") from error


def read_npz(path: Path, *, skip_pickled: bool = False) -> dict[str, NDArray[Any]]:
    """Read all arrays of an npz file; pickled ones raise an error, or become an array of `None`."""
    require(path)
    with reading(path):
        check_archive(path)
        arrays: dict[str, Any] = {}
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                try:
                    arrays[key] = file[key]
                except ValueError as error:
                    if not skip_pickled or "allow_pickle" not in str(error):  # or it is damaged
                        raise
                    arrays[key] = np.array(None)
        # numpy returns members that are not arrays as bytes.
        if bad := [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{bad[0]} is no array")
        return arrays


def read_npy(path: Path) -> NDArray[Any]:
    """Read the array of an npy file; a pickled one raises an error."""
    require(path)
    with reading(path, "write it with numpy.save"), path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read_sparse(path: Path) -> sp.csr_array:
    """Read a sparse matrix written by `scipy.sparse.save_npz`, and check every index."""
    arrays = read_npz(path)
    with reading(path):
        for key in ("indices", "indptr", "row", "col"):
            if key in arrays:
                _check_whole(arrays[key])
        stored = sp.load_npz(path)
        if hasattr(stored, "check_format"):
            stored.check_format(full_check=True)  # as in `sparse_matrix`
        return sp.csr_array(stored)


def pick(
    arrays: Mapping[str, NDArray[np.generic]], keys: Iterable[str], path: Path
) -> list[NDArray[np.generic]]:
    """Return the named arrays of a file; raise a `DataError` that names a missing one."""
    keys = list(keys)
    for key in keys:
        if key not in arrays:
            raise DataError(f"{path}: lacks the array {key}; it holds {', '.join(arrays)}")
    return [arrays[key] for key in keys]


def pick_csr(arrays: Mapping[str, NDArray[np.generic]], kind: str, path: Path) -> sp.csr_array:
    """Build a sparse matrix from the arrays `<kind>_{data,indices,indptr,shape}` of a file."""
    keys = (f"{kind}_{part}" for part in ("data", "indices", "indptr", "shape"))
    return sparse_matrix("csr", *pick(arrays, keys, path), where=path)


def sparse_matrix(
    kind: str, data: Any, first: Any, second: Any, shape: Any, *, where: str | Path
) -> sp.csr_array:
    """Build a sparse matrix from its parts, checking every index; a `DataError` names `where`.

    `kind` is `csr` for indices and indptr, or `coo` for rows and columns, where values at the same
    position are added up.
    """
    with reading(where):
        if data.dtype.kind not in NUMBERS:
            raise ValueError(f"its values are of type {data.dtype}")
        for index in (first, second, np.asarray(shape)):
            _check_whole(index)
        rows, columns = (int(size) for size in shape)
        parts = (data, first, second) if kind == "csr" else (data, (first, second))
        build = sp.csr_array if kind == "csr" else sp.coo_array
        matrix = sp.csr_array(build(parts, shape=(rows, columns)))
        # A full check, since later reads with an index outside the matrix would access any memory.
        matrix.check_format(full_check=True)
        return matrix


def _check_whole(index: NDArray[np.generic]) -> None:
    # scipy would truncate decimals, which gives another graph.
    if index.dtype.kind not in "iu":
        raise ValueError(f"its indices are of type {index.dtype}")


def dense(matrix: sp.csr_array, where: str | Path) -> NDArray[np.float32]:
    """Convert a real sparse matrix to a dense float32 one; a `DataError` if memory is too small."""
    with reading(where), np.errstate(over="ignore"):
        return matrix.astype(np.float32).toarray()  # type: ignore[no-any-return]


def read_torch(path: Path) -> Any:
    """Read a file of `torch.save` that only contains tensors and containers."""
    require(path)
    with path.open("rb") as file:
        begins = file.read(2)
    with reading(path, TO_WRITE):
        if begins not in TORCH_BEGINS:
            raise ValueError(f"torch.save has not written it: it begins with {begins!r}")
        if begins == b"PK":
            check_archive(path)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # its message suggests executing code in the file
            raise ValueError(
                "it is damaged, or holds an object, such as a whole Data, and not tensors alone"
            ) from error
