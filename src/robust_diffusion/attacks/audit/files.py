"""Perturbed graphs in files: GRB's, converted from its pickles, and this project's own."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from robust_diffusion.attacks.audit.violation import GraphLike, Kind, Violation, first, pairs
from robust_diffusion.data.files import NUMBERS, UNREADABLE, damaged, read_sparse, require
from robust_diffusion.errors import DataError
from robust_diffusion.store import read_artifact

PICKLES = (".pkl", ".pickle")
OWN = ".safetensors"

ROUNDING = 1e-6
"""Twice of what GRB's normalisation, in float32, differs from ours by rounding, and more."""


@dataclass(frozen=True, eq=False)
class ReadGraph:
    """A perturbed graph as a file has it, unchecked.

    Args:
        x: Features, original nodes first.
        edge_index: Edges as they are listed.
        kind: What the shapes speak for.
        violations: What is wrong with the file's form.
    """

    x: Tensor
    edge_index: Tensor
    kind: Kind
    violations: list[Violation] = field(default_factory=list)


def perturbed_files(path: Path) -> list[Path]:
    """The perturbed graphs at a path.

    Args:
        path: A file, or a folder with GRB's `adj*.npz` or with entries of the store.

    Raises:
        DataError: There is none, or only pickles.
    """
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("adj*.npz"))
    if not found:
        found = sorted(path.glob(f"graph-*{OWN}"))
    if not found:
        for pickled in sorted(path.iterdir()):
            _refuse_pickle(pickled)
        raise DataError(
            f"{path}: holds no perturbed graph; name a folder with adj.npz and features.npy, or "
            f"with graph-*{OWN}"
        )
    return found


def read_perturbed(path: Path, clean: GraphLike) -> ReadGraph:
    """Read a perturbed graph; nothing in the file is run.

    GRB writes the adjacency as `adj*.pkl`: after an injection the k x (n + k) rows of the injected
    nodes, after a modification n x n. Beside it lies `features*.npy`: the k injected nodes' or
    all. The pickle has to be converted to `.npz`; the message that refuses it says how. GRB
    normalises in float32, so a feature of an original node within 1e-6 of ours is read as ours.

    Args:
        path: `adj*.npz`, or an entry of the store with edge_index and either x, or what differs:
            injected_x, changed_nodes and changed_x.
        clean: The graph before the attack.

    Raises:
        DataError: It is missing, damaged, a pickle, or its shapes do not fit the clean graph.
    """
    _refuse_pickle(path)
    require(path)
    assert clean.x is not None
    if path.suffix == OWN:
        return _stored(path, clean.x)
    if path.suffix != ".npz" or not path.stem.startswith("adj"):
        raise DataError(f"{path}: is neither adj*.npz nor a {OWN} entry; name one of these")
    adjacency = read_sparse(path)
    if adjacency.dtype.kind not in NUMBERS:
        raise DataError(f"{path}: its weights are of type {adjacency.dtype}; use 0 and 1")
    return _assembled(path, adjacency, clean)


def _stored(path: Path, reference: Tensor) -> ReadGraph:
    tensors = read_artifact(path).tensors
    try:
        edge_index = tensors["edge_index"]
        if "x" in tensors:
            x = tensors["x"]
        else:
            changed = reference.index_copy(0, tensors["changed_nodes"], tensors["changed_x"])
            x = torch.cat([changed, tensors["injected_x"]])
    except KeyError as missing:
        raise DataError(
            f"{path}: lacks {missing}, so it is no perturbed graph; it holds {', '.join(tensors)}"
        ) from missing
    except (RuntimeError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: does not fit the clean graph ({reason}); name the dataset that was attacked"
        ) from error
    injected = x.ndim == 2 and x.size(0) > reference.size(0)
    return ReadGraph(x, edge_index, "injection" if injected else "modification")


def _assembled(path: Path, adjacency: sp.csr_array, clean: GraphLike) -> ReadGraph:
    assert clean.x is not None
    assert clean.edge_index is not None
    n, (rows, columns) = clean.x.size(0), adjacency.shape
    features = path.with_name(f"features{path.stem.removeprefix('adj')}.npy")
    if columns == n + rows or columns == rows >= n:
        injected = columns - n
    else:
        raise DataError(
            f"{path}: is {rows} x {columns}, which does not fit the {n} nodes of the clean graph; "
            "name the dataset that was attacked"
        )
    # A modification of edges alone comes without features.
    x = _features(features, clean.x, injected) if injected or features.is_file() else clean.x
    entries = sp.coo_array(adjacency)
    stored = entries.data != 0
    edges = torch.from_numpy(np.stack([entries.row[stored], entries.col[stored]]).astype(np.int64))
    weight = torch.from_numpy(entries.data[stored].astype(np.float64))
    edge_index = edges + torch.tensor([[columns - rows], [0]])
    odd, violations = weight != 1, []
    if count := int(odd.sum()):
        shown = first(pairs(edge_index[:, odd], weight[odd]), count)
        message = f"{count} edges have a weight, the first {shown}; all must be 1"
        violations.append(Violation("edge_weight", message))
    if rows < columns:
        # As GRB puts it together: the clean graph, the injected rows, and their transpose.
        outside = edge_index[:, edge_index[1] < n].flip(0)
        edge_index = torch.cat([clean.edge_index.cpu(), edge_index, outside], 1)
    return ReadGraph(x, edge_index, "injection" if injected else "modification", violations)


def _features(path: Path, reference: Tensor, injected: int) -> Tensor:
    """Features of all nodes; the file holds those of the injected nodes, or of all."""
    require(path)
    try:
        array = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise damaged(path, error) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in NUMBERS:
        raise DataError(f"{path}: holds no real numbers; save the features with numpy.save")
    n, width = reference.shape
    allowed = [(rows, width) for rows in (injected, n + injected) if rows]
    if array.shape not in allowed:
        wanted = " or ".join(f"{rows} x {width}" for rows, width in allowed)
        raise DataError(f"{path}: features have shape {array.shape}; they must be {wanted}")
    x = torch.from_numpy(array.astype(np.float64)).to(reference.dtype)
    if x.size(0) == injected:
        return torch.cat([reference, x])
    close = (x[:n].double() - reference.double()).abs() <= ROUNDING
    return torch.cat([torch.where(close, reference, x[:n]), x[n:]])


def _refuse_pickle(path: Path) -> None:
    if path.suffix in PICKLES:
        target = path.with_suffix(".npz")
        raise DataError(
            f"{path}: is a pickle, which can run any code when it is read; if you trust it, "
            'convert it: python -c "import pickle, scipy.sparse as sp; '
            f"sp.save_npz('{target}', sp.csr_matrix(pickle.load(open('{path}', 'rb'))))\""
        )
