import copy

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data.edge_ids import EdgeIds
from robust_diffusion.data.views import induced_view
from tests.graphs import NODES, random_edges


def graph() -> Tensor:
    """Symmetric, without self-loops, in no order."""
    edges, _ = random_edges(0, symmetric=True)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    return edges[:, torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))]


def numbered(edges: Tensor) -> np.ndarray:
    """The adjacency matrix that comes of edge numbers where SciPy takes weights.

    Its row is the node to which a message goes. Nodes in another order, edges column by column.
    """
    matrix = np.zeros((NODES, NODES))
    matrix[tuple(edges.flip(0).numpy())] = 1
    order = reverse_cuthill_mckee(sparse.csr_matrix(matrix))
    ordered = sparse.csc_matrix(matrix[np.ix_(order, order)])
    numbers = np.arange(ordered.nnz, dtype=float)
    numbered = sparse.csc_matrix((numbers, ordered.indices, ordered.indptr), shape=matrix.shape)
    found = np.empty_like(matrix)
    found[np.ix_(order, order)] = numbered.toarray()
    return found


def test_values_are_those_of_a_matrix_of_edge_numbers() -> None:
    edges = graph()
    ids, matrix = EdgeIds(edges, NODES), numbered(edges)
    src, dst = edges.numpy()
    assert ids(edges).tolist() == matrix[dst, src].tolist()
    assert sorted(ids(edges).tolist()) == list(range(edges.size(1)))
    assert ids.row_sums.tolist() == matrix.sum(1).tolist()


def test_what_is_injected_has_the_value_1_and_leaves_the_others_alone() -> None:
    edges = graph()
    ids = EdgeIds(edges, NODES)
    injected = torch.tensor([[NODES, 0], [0, NODES + 3]])
    attacked = torch.cat([injected, edges[:, 3:]], 1)
    assert ids(attacked)[:2].tolist() == [1, 1]
    assert torch.equal(ids(attacked)[2:], ids(edges)[3:])


def test_an_edge_that_is_added_between_nodes_of_the_graph_has_the_value_1() -> None:
    edges = graph()
    added = torch.tensor([[0], [NODES - 1]])
    kept = edges[:, ~(edges == added).all(0)]
    assert EdgeIds(kept, NODES)(added).tolist() == [1]


def test_a_view_has_the_values_that_its_edges_have_in_the_whole_graph() -> None:
    edges = graph()
    ids, matrix = EdgeIds(edges, NODES), numbered(edges)
    data = Data(x=torch.zeros(NODES, 2), y=torch.zeros(NODES), edge_index=edges)
    nodes = torch.arange(1, NODES, 2)
    view = induced_view(data, nodes, nodes, degree_leak=True, edge_ids=ids)
    src, dst = nodes[view.edge_index].numpy()
    assert view.edge_values.tolist() == matrix[dst, src].tolist()
    assert view.valued_degree.tolist() == (matrix.sum(1)[nodes.numpy()] + 1).tolist()
    strict = induced_view(data, nodes, nodes, degree_leak=False, edge_ids=ids)
    assert "valued_degree" not in strict


def test_a_copy_of_a_model_that_has_them_has_the_same() -> None:
    ids = EdgeIds(graph(), NODES)
    assert copy.deepcopy(ids) is ids
