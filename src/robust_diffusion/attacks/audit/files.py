"""Perturbed graphs in files, in GRB's format and in this project's."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from robust_diffusion.attacks.audit.check import (
    GraphLike,
    ViolationKind,
    Violations,
    graph_parts,
)
from robust_diffusion.data.download import require
from robust_diffusion.data.files import NUMBERS, read_npy, read_sparse
from robust_diffusion.data.pickles import read_pickle
from robust_diffusion.errors import DataError
from robust_diffusion.system.artifact import read_artifact

PICKLES = (".pkl", ".pickle")
_OWN = ".safetensors"

_ROUNDING = 1e-6
"""More than twice the rounding error between GRB's normalisation, in float32, and ours."""


@dataclass(frozen=True, eq=False)
class ReadGraph:
    """A perturbed graph as read from a file, not yet checked."""

    x: Tensor  # features, original nodes first
    edge_index: Tensor  # edges as the file lists them
    kind: ViolationKind  # kind of attack, inferred from the shapes
    violations: Violations = field(default_factory=Violations)  # defects of the file's format
    labels: Tensor | None = None  # true classes of the nodes, if the file has them
    attack: str = ""  # name of the attack in a saved report


def perturbed_files(path: str | Path) -> list[Path]:
    """List the perturbed graphs at a path: one file, or a folder of GRB or cache files."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    for name in ("adj*.npz", *(f"adj*{suffix}" for suffix in PICKLES), f"graph-*{_OWN}"):
        if paths := sorted(path.glob(name)):
            return paths
    raise DataError(
        f"{path}: holds no perturbed graph; name a folder with adj.pkl or adj.npz and "
        f"features.npy, or with graph-*{_OWN}"
    )


def read_perturbed(path: str | Path, clean: GraphLike) -> ReadGraph:
    """Read a perturbed graph without executing any code in the file.

    GRB writes the adjacency as `adj*.pkl`: the k x (n + k) rows of the injected nodes after an
    injection, n x n after a modification. `features*.npy` next to it holds the features of the k
    injected nodes, or of all nodes. The pickle is read as plain data; see `read_pickle`. GRB
    normalises in float32, so a feature of an original node within 1e-6 of ours is read as ours.

    GRB 0.1.0 draws some edges twice. Its sparse matrix adds them up, so these edges have the weight
    2, also in GRB's models; they are a `duplicate_edge` and are read once.

    Args:
        path: `*adj*.npz`, `*adj*.pkl`, or a cache entry (`.safetensors`) with edge_index and
            either x, or the differences injected_x, changed_nodes and changed_x.
        clean: The graph before the attack.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name one of its files, such as adj.pkl")
    require(path)
    if path.suffix == _OWN:
        return _stored(path, graph_parts(clean)[0])
    if path.suffix not in (".npz", *PICKLES) or "adj" not in path.stem:
        raise DataError(
            f"{path}: is neither *adj*.npz, *adj*.pkl nor a {_OWN} entry; name one of these"
        )
    adjacency = read_sparse(path) if path.suffix == ".npz" else read_pickle(path)
    if not isinstance(adjacency, sp.csr_array):
        raise DataError(f"{path}: holds no sparse matrix; save adj.tocsr() as GRB's save_adj does")
    if adjacency.dtype.kind not in NUMBERS:
        raise DataError(f"{path}: its weights are of type {adjacency.dtype}; use 0 and 1")
    return _assembled(path, adjacency, clean)


def _stored(path: Path, reference: Tensor) -> ReadGraph:
    artifact = read_artifact(path)
    tensors, attack = artifact.tensors, str(artifact.metadata.get("attack", ""))
    try:
        edge_index = tensors["edge_index"]
        x = tensors.get("x")
        if x is None:
            moved, new = (tensors[key].to(reference.dtype) for key in ("changed_x", "injected_x"))
            x = torch.cat([reference.index_copy(0, tensors["changed_nodes"], moved), new])
    except KeyError as missing:
        raise DataError(
            f"{path}: lacks {missing}, so it is no perturbed graph; it holds {', '.join(tensors)}"
        ) from missing
    except (RuntimeError, IndexError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: does not fit the clean graph ({reason}); name the dataset that was attacked"
        ) from error
    n, width = reference.shape
    if x.ndim != 2 or x.size(0) < n or x.size(1) != width:
        raise DataError(
            f"{path}: expected features of {n} nodes or more x {width}, as of the clean graph, got "
            f"{' x '.join(map(str, x.shape))}; name the dataset that was attacked"
        )
    kind: ViolationKind = "injection" if x.size(0) > n else "modification"
    return ReadGraph(x, edge_index, kind, labels=tensors.get("y"), attack=attack)


def _assembled(path: Path, adjacency: sp.csr_array, clean: GraphLike) -> ReadGraph:
    clean_x, clean_edges = graph_parts(clean)
    n, (rows, columns) = clean_x.size(0), adjacency.shape
    features = path.with_name(f"features{path.stem.removeprefix('adj')}.npy")
    if columns != n + rows and not columns == rows >= n:
        raise DataError(
            f"{path}: is {rows} x {columns}, which does not fit the {n} nodes of the clean graph; "
            "name the dataset that was attacked"
        )
    injected = columns - n
    if injected and not features.is_file():
        raise DataError(
            f"{path}: expected the {n} nodes of the clean graph, got {columns} and no features of "
            f"new nodes in {features.name}; name the dataset that was attacked"
        )
    # A modification that only flips edges has no features file.
    x = _features(features, clean_x, injected) if injected or features.is_file() else clean_x
    entries = sp.coo_array(adjacency)
    stored = entries.data != 0
    edges = torch.from_numpy(np.stack([entries.row[stored], entries.col[stored]]).astype(np.int64))
    weight = torch.from_numpy(entries.data[stored].astype(np.float64))
    edge_index = edges + torch.tensor([[columns - rows], [0]])
    listed_before = (weight > 1) & (weight.frac() == 0)  # frac of infinity is NaN, which is not 0
    odd, violations = (weight != 1) & ~listed_before, Violations()
    violations.add("duplicate_edge", edge_index[:, listed_before])
    violations.add("edge_weight", edge_index[:, odd], weight[odd])
    if rows < columns:
        # GRB assembles the clean graph, the injected rows, and their transpose in the same way.
        outside = edge_index[:, edge_index[1] < n].flip(0)
        edge_index = torch.cat([clean_edges, edge_index, outside], 1)
    return ReadGraph(x, edge_index, "injection" if injected else "modification", violations)


def _features(path: Path, reference: Tensor, injected: int) -> Tensor:
    """Return the features of all nodes; the file holds those of the injected nodes, or of all."""
    array = read_npy(path)
    if array.dtype.kind not in NUMBERS:
        raise DataError(f"{path}: holds no real numbers; save the features with numpy.save")
    n, width = reference.shape
    allowed = [(rows, width) for rows in (injected, n + injected) if rows]
    if array.shape not in allowed:
        wanted = " or ".join(f"{rows} x {width}" for rows, width in allowed)
        raise DataError(f"{path}: features have shape {array.shape}; they must be {wanted}")
    x = torch.from_numpy(array.astype(np.float64)).to(reference.dtype)
    if x.size(0) == injected:
        return torch.cat([reference, x])
    close = (x[:n].double() - reference.double()).abs() <= _ROUNDING
    return torch.cat([torch.where(close, reference, x[:n]), x[n:]])
