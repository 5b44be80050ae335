"""Edge numbers in the place of edge weights, as the authors' code has them on some graphs."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


class EdgeIds:
    """Each edge of a graph has its number as its value; an edge that is not of it has the value 1.

    The authors take PubMed, Coauthor and Amazon Computer from DGL, whose sparse adjacency holds
    numbers of edges where that of SciPy holds weights. GRB's normalisation does not reset them, so
    that models which read the values of the matrix give an injected edge, of value 1, some 10^-5
    of the weight of another.

    DGL orders the nodes of Coauthor and Amazon Computer by reverse Cuthill-McKee, and the edges by
    where they point to, which in GRB's matrix is the column, the node that a message comes from.
    They are numbered from 0.

    Args:
        edge_index: Edges, both directions, without duplicates.
        num_nodes: Number of nodes n.
    """

    def __init__(self, edge_index: Int[Tensor, "2 e"], num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._ranks = _ranks(edge_index, num_nodes)
        self._places = self._place(edge_index).sort().values
        self._known: Any = WeakIdKeyDictionary()
        self.row_sums: Float[Tensor, " n"] = torch.zeros(num_nodes).index_add(
            0, edge_index[1], self(edge_index)
        )
        """Sum of the values of the edges that arrive at each node."""

    def __call__(self, edge_index: Int[Tensor, "2 e"]) -> Float[Tensor, " e"]:
        """The values of edges between these nodes and injected ones, which come after them."""
        if edge_index not in self._known:
            with torch.inference_mode(mode=False):
                self._known[edge_index] = self._values(edge_index)
        return self._known[edge_index]  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> "EdgeIds":
        """Itself: nothing in it changes."""
        return self

    def _values(self, edge_index: Tensor) -> Tensor:
        inside = (edge_index < self._num_nodes).all(0)
        values = torch.ones(edge_index.size(1), device=edge_index.device)
        places, wanted = self._places.to(edge_index.device), self._place(edge_index[:, inside])
        found = torch.searchsorted(places, wanted).clamp_max(places.numel() - 1)
        values[inside] = torch.where(places[found] == wanted, found, 1).float()
        return values

    def _place(self, edge_index: Tensor) -> Tensor:
        src, dst = self._ranks.to(edge_index.device)[edge_index]
        place: Tensor = src * self._num_nodes + dst
        return place


def _ranks(edge_index: Tensor, num_nodes: int) -> Tensor:
    ones = np.ones(edge_index.size(1))
    shape = (num_nodes, num_nodes)
    matrix = sparse.csr_matrix((ones, tuple(edge_index.cpu().numpy())), shape=shape)
    order = torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=False).astype(np.int64))
    return torch.empty_like(order).scatter(0, order, torch.arange(num_nodes))
