"""Parts of a graph that a model sees at one stage."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree, subgraph


def induced_view(
    data: Data, nodes: Int[Tensor, " k"], scored: Int[Tensor, " s"], *, degree_leak: bool
) -> Data:
    """The subgraph on sorted `nodes`, with a mask of those that are scored.

    With `degree_leak` the degrees of the whole graph, self-loop included, are attached to a part of
    it as `degree`. GRB normalises the whole adjacency and cuts it then, so test degrees leak into
    training. A part also has `n_id`, its nodes in the whole graph.
    """
    n = data.num_nodes
    assert n is not None
    assert data.x is not None
    assert data.edge_index is not None
    assert isinstance(data.y, Tensor)
    mask = torch.zeros(n, dtype=torch.bool)
    mask[scored] = True
    if nodes.numel() == n:
        # The whole graph: a view of it, not a copy of its features.
        return Data(x=data.x, y=data.y, edge_index=data.edge_index, mask=mask)
    edge_index, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=n)
    view = Data(x=data.x[nodes], y=data.y[nodes], edge_index=edge_index, mask=mask[nodes])
    view.n_id = nodes
    if degree_leak:
        view.degree = degree(data.edge_index[1], n, dtype=data.x.dtype)[nodes] + 1
    return view
