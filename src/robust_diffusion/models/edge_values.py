"""Edge values: the number of each edge in place of its weight, as in the authors' matrices.

The authors load PubMed, Coauthor and Amazon Computer from DGL, whose sparse adjacency holds edge
numbers where that of SciPy holds weights. GRB's normalisation does not reset them. A model that
reads the values of the matrix therefore gives an injected edge, of value 1, about 10^-5 of the
weight of another edge. `with_edge_values` wraps such a model; all other code ignores the values.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.models.convolutional import GCN, GIN, RobustGCN
from robust_diffusion.models.propagating import APPNP
from robust_diffusion.system.tensor_hashes import ByTensor

VALUE_READERS = (GCN, RobustGCN, APPNP, GIN)
"""Models whose code in GRB reads the values of the adjacency matrix.

The first three normalise them, and GIN uses them in its sums. GraphSAGE sets them to 1, GCN-SVD
decomposes the matrix of ones, and GAT and the graph PDEs only use the positions of the edges.
"""


def with_edge_values(model: nn.Module, datamodule: GraphDataModule) -> nn.Module:
    """Wrap a model to use the edge values of a graph; return it as is if they have no effect."""
    if datamodule.edge_values == "ones" or not isinstance(model, VALUE_READERS):
        return model
    views = (datamodule.view("train"), datamodule.view("val"))
    return OnEdgeValues(model, EdgeNumbers(datamodule.graph, views))


class EdgeNumbers:
    """Values of edges: their number in the graph, or 1 for all other edges.

    DGL orders the nodes of Coauthor and Amazon Computer by reverse Cuthill-McKee, and the edges by
    their target, which in GRB's matrix is the column: the node that a message comes from. Edges are
    numbered from 0.

    Args:
        graph: The whole graph of n nodes, with edges in both directions and without duplicates.
        views: Induced subgraphs, recognised by their edges; `n_id` has their nodes.
    """

    def __init__(self, graph: Data, views: Iterable[Data] = ()) -> None:
        assert graph.edge_index is not None
        assert graph.num_nodes is not None
        self._num_nodes = graph.num_nodes
        # Largest first: a view of nodes 0..k-1 is also part of a larger one.
        by_size = sorted(views, key=lambda view: -view.n_id.numel())
        self._views = [(view.n_id, view.edge_index) for view in by_size]
        self._ranks = _ranks(graph.edge_index, self._num_nodes)
        self._places = self._place(graph.edge_index).sort().values
        self._known = ByTensor()
        self._row_sums = torch.zeros(self._num_nodes).index_add(
            0, graph.edge_index[1], self(graph.edge_index, self._num_nodes)
        )

    def __call__(self, edge_index: Int[Tensor, "2 e"], num_nodes: int) -> Float[Tensor, " e"]:
        """Return the values of the edges of a view or the whole graph; injected nodes come last."""

        def compute() -> Tensor:
            nodes = self._nodes(edge_index, num_nodes)
            named = edge_index if nodes is None else nodes.to(edge_index.device)[edge_index]
            return self._values(named)

        return self._known.kept(edge_index, num_nodes, compute)

    def degree(
        self, degree: Float[Tensor, " n"], edge_index: Int[Tensor, "2 e"]
    ) -> Float[Tensor, " n"]:
        """Return sums of values, self-loops included, for a view; other degrees as they are."""
        nodes = self._nodes(edge_index, degree.numel())
        return degree if nodes is None else (self._row_sums[nodes] + 1).to(degree.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> "EdgeNumbers":
        """Return the object itself, which is immutable."""
        return self

    def _nodes(self, edge_index: Tensor, num_nodes: int) -> Tensor | None:
        """Find the nodes of the view with these edges; `None` for the whole graph."""

        def find() -> Tensor | None:
            for nodes, edges in self._views:
                injected = num_nodes - nodes.numel()
                is_old = (edge_index < nodes.numel()).all(0)
                fits = injected == 0 or (injected > 0 and edges.numel() > 0)
                if (
                    fits
                    and torch.equal(edge_index[:, is_old].cpu(), edges)
                    and not self._is_whole(edge_index[:, ~is_old], num_nodes)
                ):
                    return torch.cat([nodes, self._num_nodes + torch.arange(injected)])
            return None

        return self._known.kept(edge_index, ("nodes", num_nodes), find)

    def _is_whole(self, outside: Tensor, num_nodes: int) -> bool:
        """Return whether edges outside of a view are mostly the graph's own, up to some flips."""
        if num_nodes < self._num_nodes:
            return False
        named = outside[:, (outside < self._num_nodes).all(0)]
        own = self._values(named) != 1  # edge number 1 is too rare to matter
        return bool(2 * own.sum() > own.numel())

    def _values(self, edge_index: Tensor) -> Tensor:
        inside = (edge_index < self._num_nodes).all(0)
        values = torch.ones(edge_index.size(1), device=edge_index.device)
        places, wanted = self._places.to(edge_index.device), self._place(edge_index[:, inside])
        index = torch.searchsorted(places, wanted).clamp_max(places.numel() - 1)
        values[inside] = torch.where(places[index] == wanted, index, 1).float()
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


class OnEdgeValues(nn.Module):
    """A model that uses the value of each edge as its weight."""

    def __init__(self, model: nn.Module, values: EdgeNumbers) -> None:
        super().__init__()
        self.model = model
        self.values = values
        self.normalizes_by_degree = bool(getattr(model, "normalizes_by_degree", False))

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return class logits of every node; `edge_weight` multiplies the values, 1 by default."""
        weight = self.values(edge_index, x.size(0))
        if edge_weight is not None:
            weight = weight * edge_weight
        kwargs = {} if degree is None else {"degree": self.values.degree(degree, edge_index)}
        return self.model(x, edge_index, weight, **kwargs)  # type: ignore[no-any-return]
