"""A PyG `Data` in memory, checked as a file would be."""

import logging
from collections.abc import Mapping

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

NAMES = ("{}_mask", "{}_idx", "index_{}")
"""Names under which a `Data` may hold the nodes of a part of its split."""


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
    adjacency = _adjacency(data, num_nodes)
    known = labels != -1
    graph = build_graph(
        adjacency,
        features,
        np.where(known, labels, 0),
        {name: index.numpy() for name, index in splits.items()},
        where="data",
        every_class=False,
    )
    assert isinstance(graph.y, Tensor)
    graph.y[torch.from_numpy(~known.reshape(-1))] = -1
    for name, index in splits.items():
        if (unlabelled := index[graph.y[index] < 0]).numel():
            raise DataError(
                f"data.y: node {int(unlabelled[0])} of {name} has the label -1, that is none; "
                "leave it out"
            )
    return graph


def split_of(data: Data) -> dict[str, Int[Tensor, "_"]]:
    """Node numbers of each part of the split that a `Data` holds, by masks or by indices.

    Raises:
        DataError: train, val or test is missing, or a part is no set of nodes.
    """
    for part in ("train", "val", "test"):
        if not _holds(data, part):
            raise _missing(part)
    return {part: node_index(data, part) for part in SPLITS if _holds(data, part)}


def has_split(data: Data) -> bool:
    """True of a `Data` that holds any part of a split."""
    return any(_holds(data, part) for part in SPLITS)


def node_index(data: Data, nodes: object, name: str = "nodes") -> Int[Tensor, "_"]:
    """Sorted numbers of some nodes.

    Args:
        data: The graph.
        nodes: `all`; the name of a part, `test` being `test_mask`, `test_idx` or `index_test`; a
            boolean mask; or node numbers.
        name: Of the argument, for messages.

    Raises:
        DataError: The part is missing, the mask or the numbers do not fit the graph, or there is
            no node.
    """
    n = data.num_nodes or 0
    if isinstance(nodes, str):
        if nodes == "all":
            return torch.arange(n)
        key = next((of for of in (p.format(nodes) for p in NAMES) if of in data), None)
        if key is None:
            raise _missing(nodes)
        return node_index(data, data[key], f"data.{key}")
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


def _holds(data: Data, part: str) -> bool:
    return any(pattern.format(part) in data for pattern in NAMES)


def _missing(part: str) -> DataError:
    own, *others = (pattern.format(part) for pattern in NAMES)
    return DataError(
        f"data.{own}: missing, as are {' and '.join(others)}; add it, or name the nodes yourself"
    )


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
    weight = data.edge_weight if "edge_weight" in data else None
    if weight is not None and bool((torch.as_tensor(weight) != 1).any()):
        raise DataError(
            "data.edge_weight: holds weights other than 1, of which no attack knows; drop it "
            "(del data.edge_weight) if the model does without"
        )
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
