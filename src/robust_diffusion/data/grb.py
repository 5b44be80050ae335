"""Graphs in the file layout of the Graph Robustness Benchmark."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import DataError

# What numpy, scipy and zipfile raise on a file that is cut short, not a zip, or not an array.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def load_grb(root: str | Path, name: str) -> Data:
    """Read `<root>/grb-<name>/{adj,features,labels,index}.npz`.

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        root: The data directory.
        name: The graph's name without the `grb-`, such as `cora`.

    Returns:
        The checked graph with GRB's split, features raw; see `build_graph`.

    Raises:
        DataError: A file is missing, damaged, or does not hold what it should.
    """
    folder = Path(root) / f"grb-{name}"
    adjacency = _read_adjacency(folder / "adj.npz")
    features = _read_arrays(folder / "features.npz", ["data"])["data"]
    labels = _read_arrays(folder / "labels.npz", ["data"])["data"]
    index = _read_arrays(folder / "index.npz", [f"index_{split}" for split in SPLITS])
    splits = {split: index[f"index_{split}"] for split in SPLITS}
    return build_graph(adjacency, features, labels, splits, where=folder)


def _read_adjacency(path: Path) -> sp.csr_array:
    _require(path)
    try:
        _check_archive(path)
        stored = sp.load_npz(path)
        if hasattr(stored, "check_format"):
            # In full, since an index outside the matrix would be read as memory later on.
            stored.check_format(full_check=True)
        return sp.csr_array(stored)
    except UNREADABLE as error:
        raise _damaged(path, error) from error


def _read_arrays(path: Path, keys: list[str]) -> dict[str, NDArray[np.generic]]:
    _require(path)
    try:
        _check_archive(path)
        # Pickled objects are code; a data file that holds any is refused.
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files if key in keys}
    except UNREADABLE as error:
        raise _damaged(path, error) from error
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise DataError(f"{path}: lacks the array {missing[0]}; fetch GRB's file again")
    return arrays


def _require(path: Path) -> None:
    if not path.is_file():
        raise DataError(
            f"{path}: not found; put the file there, or point paths.data_dir or "
            f"ROBUST_DIFFUSION_DATA to the folder that holds {path.parent.name}/"
        )


def _check_archive(path: Path) -> None:
    """Hold every byte against the checksums, which numpy skips where it stops reading early."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename} is compressed in an unknown way")
        if (broken := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{broken} does not match its checksum")


def _damaged(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{path}: cannot be read ({reason}); fetch the file again")
