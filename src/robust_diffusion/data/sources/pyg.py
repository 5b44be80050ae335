"""A PyG `Data` in memory, checked as a file would be, and any graph served with its targets."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data.validate import SPLITS, build_graph, check_edge_index, node_numbers
from robust_diffusion.errors import DataError

log = logging.getLogger(__name__)

NAMES = ("{}_mask", "{}_idx", "index_{}", "idx_{}")
"""Names under which a graph may hold the nodes of a part of its split."""

SPLIT_NAMES = tuple(pattern.format(part) for part in SPLITS for pattern in NAMES)

WEIGHTS = ("edge_weight", "edge_attr", "weight")
"""Names of edge weights: PyTorch Geometric's, those of its GDC, and those of networkx."""


def checked_graph(data: Data, splits: Mapping[str, Int[Tensor, "_"]]) -> Data:
    """The graph of a `Data`, as `build_graph` returns it; `data` itself is left as it is.

    Edges are sorted by source, or by target if those of `data` are, as PyTorch Geometric's sorted
    aggregations need them.

    Self-loops and duplicate edges are dropped, each with a warning. Nodes outside of `splits` may
    have the label -1, and classes may have no node.

    Args:
        data: Has x, edge_index of both directions, and y.
        splits: Node numbers by part.

    Raises:
        DataError: Something is missing, of the wrong type or shape, or no graph can have it.
    """
    if not isinstance(data, Data):
        raise DataError(
            f"data: is a {type(data).__name__}; give a torch_geometric.data.Data, such as "
            "dataset[0]"
        )
    features, labels = _array(data, "x"), _array(data, "y")
    num_nodes = features.shape[0] if features.ndim else 0
    adjacency = _adjacency(data, num_nodes)
    graph = build_graph(adjacency, features, labels, splits, where="data", every_class=False)
    assert data.edge_index is not None
    assert graph.edge_index is not None
    if (data.edge_index.diff() < 0).any(1).tolist() == [True, False]:
        graph.edge_index = graph.edge_index.flip(0)  # every edge has its reverse
    return graph


def split_of(
    held: Mapping[str, Any], num_nodes: int, *, where: str = "data."
) -> dict[str, Int[Tensor, "_"]]:
    """Node numbers of each part of the split that a graph holds, by masks or by indices.

    Args:
        held: What the graph holds, by name.
        num_nodes: Number of its nodes.
        where: Begins messages, before a name.

    Returns:
        Empty if it holds nothing that looks like a split.

    Raises:
        DataError: Train, val or test is missing, a part is no set of nodes or is there twice and
            not the same, or the split has names that are not read.
    """
    parts = [part for part in SPLITS if _names(held, part)]
    if parts:
        parts += [part for part in ("train", "val", "test") if part not in parts]
    elif odd := [key for key in held if re.search("train|split", key)]:
        raise DataError(
            f"{where}{odd[0]}: is not read as a split; name its parts train_mask, val_mask and "
            "test_mask, or drop it"
        )
    return {part: _part(held, part, num_nodes, where) for part in parts}


def log_unread(held: Mapping[str, Any], read: Collection[str], *, where: str) -> None:
    """Warn of arrays that no one reads."""
    known = {*read, *SPLIT_NAMES}
    arrays = [k for k, v in held.items() if isinstance(v, Tensor | np.ndarray) and k not in known]
    if arrays:
        log.warning("%s: not read: %s", where, ", ".join(arrays))


def node_index(data: Data, nodes: object, name: str = "nodes") -> Int[Tensor, "_"]:
    """Sorted numbers of some nodes.

    Args:
        data: The graph.
        nodes: `all`; the name of a part, `test` being `test_mask`, `test_idx`, `index_test` or
            `idx_test`; a boolean mask; or node numbers.
        name: Of the argument, for messages.

    Raises:
        DataError: The part is missing, the mask or the numbers do not fit the graph, or there is
            no node.
    """
    n = data.num_nodes or 0
    if isinstance(nodes, str):
        return torch.arange(n) if nodes == "all" else _part(data.to_dict(), nodes, n, "data.")
    return node_numbers(nodes, n, name)


def _part(held: Mapping[str, Any], part: str, n: int, where: str) -> Int[Tensor, "_"]:
    names = _names(held, part)
    if not names:
        own, *further = (pattern.format(part) for pattern in NAMES)
        raise DataError(f"{where}{own}: missing, as are {', '.join(further)}; add one of them")
    first, *others = (node_numbers(held[name], n, f"{where}{name}") for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if not torch.equal(first, other):
            raise DataError(f"{where}{name}: names other nodes than {names[0]}; keep one of them")
    return first


def _names(held: Mapping[str, Any], part: str) -> list[str]:
    names = (pattern.format(part) for pattern in NAMES)
    return [name for name in names if held.get(name) is not None]


def _array(data: Data, key: str) -> NDArray[np.generic]:
    value = getattr(data, key, None)
    if value is None:
        raise DataError(f"data.{key}: missing; a graph needs x, edge_index and y, and no adj_t")
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise DataError(f"data.{key}: must be a dense tensor, and is a {type(value).__name__}")
    half = value.dtype in (torch.float16, torch.bfloat16)
    array: NDArray[np.generic] = (value.float() if half else value).detach().cpu().numpy()
    return array


def _adjacency(data: Data, num_nodes: int) -> sp.csr_array:
    edges = _array(data, "edge_index")
    check_edge_index(edges, num_nodes, where="data")
    num_edges = edges.shape[1]
    held = data.to_dict().items()
    per_edge = {k: v for k, v in held if getattr(v, "shape", ())[:1] == (num_edges,)}
    for key in [key for key in WEIGHTS if key in per_edge]:
        one_each = per_edge[key].shape in ((num_edges,), (num_edges, 1))
        if one_each and bool((per_edge.pop(key) != 1).any()):
            raise DataError(
                f"data.{key}: holds weights other than 1, which no attack handles; drop it "
                f"(del data.{key}) if the model does without"
            )
    log_unread(per_edge, ("x", "y", "edge_index"), where="data")
    row, col = edges.astype(np.int64)
    shape = (num_nodes, num_nodes)
    adjacency = sp.csr_array((np.ones(row.size, dtype=bool), (row, col)), shape=shape)
    if adjacency.nnz < row.size:
        message = "data: edge_index lists %d edges more than once; each counts once"
        log.warning(message, row.size - adjacency.nnz)
    if one_way := (adjacency != adjacency.T).nnz // 2:
        raise DataError(
            f"data.edge_index: is directed, {one_way} edges lack their reverse; use "
            "torch_geometric.utils.to_undirected(data.edge_index)"
        )
    return adjacency


class Served(ABC):
    """Base of the `GraphDataModule` without Lightning, whose import takes a second.

    Attributes:
        name: The dataset's name.
    """

    name: str

    @property
    @abstractmethod
    def graph(self) -> Data:
        """The whole graph, features normalised."""

    @property
    @abstractmethod
    def target_nodes(self) -> Int[Tensor, " t"]:
        """Test nodes that are scored, and attacked."""
