"""Data files, read as data: no code in them is ever run."""

import pickle
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from robust_diffusion.errors import DataError

NUMBERS = "biuf"
"""Kinds of numpy types that are real numbers."""

# What numpy, scipy and zipfile raise on a file that is cut short, not a zip, or not an array.
UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, MemoryError),
    *(ArithmeticError, RuntimeError, zipfile.BadZipFile, zlib.error, pickle.UnpicklingError),
)


TORCH_BEGINS = (b"PK", b"\x80\x02")
"""First bytes of a file of `torch.save`: a zip archive or, in its older formats, a pickle."""

TO_WRITE = "write it with torch.save(data.to_dict(), path), weights with model.state_dict()"


def read_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """Every array of an npz file.

    Raises:
        DataError: The file is missing, damaged, or holds pickled objects.
    """
    require(path)
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            return {key: _array(file, key, path) for key in file.files}
    except DataError:
        raise
    except UNREADABLE as error:
        raise damaged(path, error) from error


def _array(file: NpzFile, key: str, path: Path) -> NDArray[np.generic]:
    try:
        array = file[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path}: cannot be read ({key} holds Python objects); save it as an array of numbers"
        ) from error
    # numpy returns a member that is no array as bytes.
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: cannot be read ({key} is no array); fetch the file again")
    return array


def read_sparse(path: Path) -> sp.csr_array:
    """A sparse matrix that `scipy.sparse.save_npz` wrote, every index checked.

    Raises:
        DataError: The file is missing, damaged, or holds no sparse matrix.
    """
    arrays = read_npz(path)
    try:
        for key in ("indices", "indptr", "row", "col"):
            if key in arrays:
                _check_whole(arrays[key])
        stored = sp.load_npz(path)
        if hasattr(stored, "check_format"):
            stored.check_format(full_check=True)  # as in `csr`
        return sp.csr_array(stored)
    except UNREADABLE as error:
        raise damaged(path, error) from error


def pick(
    arrays: Mapping[str, NDArray[np.generic]], keys: Iterable[str], path: Path
) -> list[NDArray[np.generic]]:
    """The named ones of a file's arrays, or a DataError that names the missing one."""
    keys = list(keys)
    for key in keys:
        if key not in arrays:
            raise DataError(f"{path}: lacks the array {key}; it holds {', '.join(arrays)}")
    return [arrays[key] for key in keys]


def pick_csr(arrays: Mapping[str, NDArray[np.generic]], kind: str, path: Path) -> sp.csr_array:
    """The sparse matrix of the arrays `<kind>_{data,indices,indptr,shape}` of a file."""
    keys = (f"{kind}_{part}" for part in ("data", "indices", "indptr", "shape"))
    return csr(*pick(arrays, keys, path), where=path)


def csr(data: Any, indices: Any, indptr: Any, shape: Any, *, where: str | Path) -> sp.csr_array:
    """A sparse matrix from its parts, every index checked, or a DataError that names `where`."""
    try:
        if data.dtype.kind not in NUMBERS:
            raise ValueError(f"its values are of type {data.dtype}")
        for index in (indices, indptr, np.asarray(shape)):
            _check_whole(index)
        rows, columns = (int(size) for size in shape)
        matrix = sp.csr_array((data, indices, indptr), shape=(rows, columns))
        # A full check, since an index outside the matrix would be read as memory later on.
        matrix.check_format(full_check=True)
    except UNREADABLE as error:
        raise damaged(where, error) from error
    return matrix


def coo(data: Any, row: Any, col: Any, shape: Any, *, where: str | Path) -> sp.csr_array:
    """The same from coordinates; values at one place are added up."""
    try:
        if data.dtype.kind not in NUMBERS:
            raise ValueError(f"its values are of type {data.dtype}")
        for index in (row, col, np.asarray(shape)):
            _check_whole(index)
        rows, columns = (int(size) for size in shape)
        # scipy compares every index with the shape.
        return sp.csr_array(sp.coo_array((data, (row, col)), shape=(rows, columns)))
    except UNREADABLE as error:
        raise damaged(where, error) from error


def _check_whole(index: NDArray[np.generic]) -> None:
    # scipy would cut off what is behind the point, which gives another graph.
    if index.dtype.kind not in "iu":
        raise ValueError(f"its indices are of type {index.dtype}")


def dense(matrix: sp.csr_array, where: str | Path) -> NDArray[np.float32]:
    """A real sparse matrix as a dense one of float32; a DataError if it does not fit in memory."""
    try:
        with np.errstate(over="ignore"):
            return matrix.astype(np.float32).toarray()  # type: ignore[no-any-return]
    except (MemoryError, ValueError) as error:
        raise damaged(where, error) from error


def read_torch(path: Path) -> Any:
    """Contents of a file that `torch.save` wrote.

    Raises:
        DataError: The file is missing, damaged, or holds more than tensors and containers.
    """
    require(path)
    with path.open("rb") as file:
        begins = file.read(2)
    if begins not in TORCH_BEGINS:
        raise DataError(
            f"{path}: cannot be read (torch.save has not written it: it begins with {begins!r}); "
            f"{TO_WRITE}"
        )
    try:
        if begins == b"PK":
            check_archive(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path}: cannot be read (it is damaged, or holds an object, such as a whole Data, and "
            f"not tensors alone); {TO_WRITE}"
        ) from error
    except Exception as error:  # torch's unpickler raises anything on damaged bytes
        raise damaged(path, error) from error


def check_archive(path: Path) -> None:
    """Compare every byte with the checksums, which numpy and torch may skip."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename} is compressed in an unknown way")
        if (broken := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{broken} does not match its checksum")


def require(path: Path) -> None:
    """Raise a DataError if there is no such file."""
    if not path.is_file():
        raise DataError(f"{path}: not found; check the path")


def damaged(path: str | Path, error: Exception) -> DataError:
    """The error for a file that cannot be read, in one line."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return DataError(f"{path}: cannot be read ({reason}); fetch the file again")
