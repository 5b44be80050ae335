"""A PyG `Data` in memory, checked as a file would be."""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data.validate import SPLITS, build_graph, check_edge_index
from robust_diffusion.errors import DataError

log = logging.getLogger(__name__)

NAMES = ("{}_mask", "{}_idx", "index_{}", "idx_{}")
"""Names under which a graph may hold the nodes of a part of its split."""

WEIGHTS = ("edge_weight", "edge_attr", "weight")
"""Names of edge weights: PyTorch Geometric's, those of its GDC, and those of networkx."""


def checked_graph(data: Data, splits: Mapping[str, Int[Tensor, "_"]]) -> Data:
    """The graph of a `Data`, as `build_graph` returns it; `data` itself is left as it is.

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
    return build_graph(
        _adjacency(data, num_nodes),
        features,
        labels,
        {name: index.numpy() for name, index in splits.items()},
        where="data",
        every_class=False,
    )


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
    for part in ("train", "val", "test"):
        if parts and part not in parts:
            raise _missing(part, where)
    if odd := [key for key in held if not parts and re.search("train|split", key)]:
        raise DataError(
            f"{where}{odd[0]}: is not read as a split; name its parts train_mask, val_mask and "
            "test_mask, or drop it"
        )
    return {part: _part(held, part, num_nodes, where) for part in parts}


def tell_of_unread(held: Mapping[str, Any], read: Collection[str], *, where: str) -> None:
    """Warn of arrays that nobody reads."""
    known = {*read, *(name for part in SPLITS for name in _names(held, part))}
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
    return _index(nodes, n, name)


def _part(held: Mapping[str, Any], part: str, n: int, where: str) -> Int[Tensor, "_"]:
    names = _names(held, part)
    if not names:
        raise _missing(part, where)
    first, *others = (_index(held[name], n, f"{where}{name}") for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if not torch.equal(first, other):
            raise DataError(f"{where}{name}: names other nodes than {names[0]}; keep one of them")
    return first


def _names(held: Mapping[str, Any], part: str) -> list[str]:
    names = (pattern.format(part) for pattern in NAMES)
    return [name for name in names if held.get(name) is not None]


def _index(nodes: object, n: int, name: str) -> Int[Tensor, "_"]:
    try:
        given = torch.as_tensor(nodes).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            f"{name}: is a {type(nodes).__name__}; give a mask, node numbers, or a name like test"
        ) from None
    index = _unmasked(given, n, name) if given.dtype == torch.bool else given
    if index.ndim != 1 or not index.numel():
        raise DataError(f"{name}: has shape {tuple(index.shape)}; it must name one node at least")
    if index.is_floating_point() or index.is_complex():
        raise DataError(f"{name}: is of type {index.dtype}; use bool for a mask, int64 for numbers")
    index = index.long().sort().values
    for wrong in (int(index[0]), int(index[-1])):
        if not 0 <= wrong < n:
            raise DataError(f"{name}: names node {wrong}; nodes are 0..{n - 1}")
    twice = index[1:][index[1:] == index[:-1]]
    if twice.numel():
        raise DataError(
            f"{name}: names node {int(twice[0])} twice; name each once (a mask is of type bool)"
        )
    return index


def _unmasked(mask: Tensor, n: int, name: str) -> Tensor:
    if mask.shape != (n,):
        several = mask.ndim == 2 and mask.size(0) == n
        remedy = f"; it holds several splits, so take one: {name}[:, 0]" if several else ""
        raise DataError(
            f"{name}: has shape {tuple(mask.shape)}; a mask of this graph has {n} values{remedy}"
        )
    return mask.nonzero().squeeze(1)


def _missing(part: str, where: str) -> DataError:
    own, *others = (pattern.format(part) for pattern in NAMES)
    return DataError(f"{where}{own}: missing, as are {', '.join(others)}; add one of them")


def _array(data: Data, key: str) -> NDArray[np.generic]:
    value = getattr(data, key, None)
    if value is None:
        raise DataError(f"data.{key}: missing; a graph needs x, edge_index and y")
    if not isinstance(value, Tensor):
        raise DataError(f"data.{key}: is a {type(value).__name__}; it must be a tensor")
    if value.layout != torch.strided:
        raise DataError(f"data.{key}: is sparse; use data.{key}.to_dense()")
    half = value.dtype in (torch.float16, torch.bfloat16)
    array: NDArray[np.generic] = (value.float() if half else value).detach().cpu().numpy()
    return array


def _adjacency(data: Data, num_nodes: int) -> sp.csr_array:
    if data.edge_index is None and "adj_t" in data:
        raise DataError("data.edge_index: missing, and adj_t is not read; drop ToSparseTensor")
    edges = _array(data, "edge_index")
    check_edge_index(edges, num_nodes, where="data")
    num_edges = edges.shape[1]
    held = data.to_dict().items()
    per_edge = {k: v for k, v in held if getattr(v, "shape", ())[:1] == (num_edges,)}
    for key in [key for key in WEIGHTS if key in per_edge]:
        one_each = per_edge[key].shape in ((num_edges,), (num_edges, 1))
        if one_each and bool((per_edge.pop(key) != 1).any()):
            raise DataError(
                f"data.{key}: holds weights other than 1, of which no attack knows; drop it "
                f"(del data.{key}) if the model does without"
            )
    tell_of_unread(per_edge, ("x", "y", "edge_index"), where="data")
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
