import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.datamodule import induced_view
from robust_diffusion.models import APPNP, GAT, GCN, GIN, RobustGCN
from robust_diffusion.models.edge_values import EdgeNumbers, OnEdgeValues, with_edge_values
from robust_diffusion.training import NodeClassification
from tests.graphs import NODES, random_edges, random_signal
from tests.models.small import build_model

PART = torch.arange(1, NODES, 2)


def graph() -> Data:
    """Symmetric, without self-loops, in no order."""
    edges, _ = random_edges(0, symmetric=True)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    order = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))
    return Data(x=random_signal(), y=torch.zeros(NODES), edge_index=edges[:, order])


def matrix(edges: Tensor) -> Tensor:
    """The adjacency matrix that comes of edge numbers where SciPy takes weights.

    Its row is the node to which a message goes. Nodes in another order, edges column by column.
    """
    ones = np.zeros((NODES, NODES))
    ones[tuple(edges.flip(0).numpy())] = 1
    order = reverse_cuthill_mckee(sparse.csr_matrix(ones))
    ordered = sparse.csc_matrix(ones[np.ix_(order, order)])
    numbers = np.arange(ordered.nnz, dtype=float)
    numbered = sparse.csc_matrix((numbers, ordered.indices, ordered.indptr), shape=ones.shape)
    found = np.empty_like(ones)
    found[np.ix_(order, order)] = numbered.toarray()
    return torch.from_numpy(found).float()


def on_values(model: nn.Module, *views: Data) -> OnEdgeValues:
    return OnEdgeValues(model, EdgeNumbers(graph(), views)).eval()


def test_values_are_those_of_the_dense_matrix() -> None:
    edges = graph().edge_index
    values = EdgeNumbers(graph())(edges, NODES)
    assert values.tolist() == matrix(edges)[edges[1], edges[0]].tolist()
    assert sorted(values.tolist()) == list(range(edges.size(1)))


def test_an_injected_or_added_edge_has_the_value_1() -> None:
    kept = graph()
    kept.edge_index, gone = kept.edge_index[:, 3:], kept.edge_index[:, :3]
    edges, numbers = kept.edge_index, EdgeNumbers(kept)
    attacked = torch.cat([torch.tensor([[NODES, 0], [0, NODES + 3]]), gone, edges], 1)
    values = numbers(attacked, NODES + 4)
    assert values[:5].tolist() == [1] * 5
    assert torch.equal(values[5:], numbers(edges, NODES))


@pytest.mark.parametrize("degree_leak", [False, True])
def test_a_view_has_the_whole_graphs_values(degree_leak: bool) -> None:
    dense = matrix(graph().edge_index)
    view = induced_view(graph(), PART, PART, degree_leak=degree_leak)
    src, dst = PART[view.edge_index]
    sums = (dense.sum(1)[PART] + 1) if degree_leak else None
    model = build_model(GCN)
    expected = model(view.x, view.edge_index, dense[dst, src], sums)
    trained = NodeClassification(on_values(model, view), num_classes=3)
    assert torch.equal(trained(view), expected)
    # A model that does not read them trains as ever.
    plain = NodeClassification(model, num_classes=3)(view)
    leaked = view.degree if degree_leak else None
    assert torch.equal(plain, model(view.x, view.edge_index, degree=leaked))


@pytest.mark.parametrize("cls", [GCN, RobustGCN, APPNP, GIN])
def test_the_values_are_the_weights(cls: type[nn.Module]) -> None:
    model, edges = build_model(cls), graph().edge_index
    values = matrix(edges)[edges[1], edges[0]]
    expected = model(random_signal(), edges, values)
    assert torch.equal(on_values(model)(random_signal(), edges), expected)
    assert not torch.allclose(model(random_signal(), edges), expected)
    weight = torch.rand(edges.size(1)).double()
    expected = model(random_signal(), edges, weight * values)
    assert torch.equal(on_values(model)(random_signal(), edges, weight), expected)


@pytest.fixture
def served() -> GraphDataModule:
    whole = graph()
    whole.num_classes = 3
    whole.index_train, whole.index_val = torch.arange(4), torch.arange(4, 6)
    whole.index_test = torch.arange(6, NODES)
    return GraphDataModule(lambda: whole, name="small", difficulty="full", edge_values="ids")


def test_a_model_that_reads_values_is_wrapped(served: GraphDataModule) -> None:
    model = with_edge_values(build_model(GCN), served)
    assert isinstance(model, OnEdgeValues)
    for stage in ("train", "val", "test"):
        view = served.view(stage)
        named = view.n_id[view.edge_index] if "n_id" in view else view.edge_index
        expected = EdgeNumbers(served.graph)(named, NODES)
        assert torch.equal(model.values(view.edge_index, view.num_nodes), expected)
    served.edge_values = "ones"
    assert not isinstance(with_edge_values(model.model, served), OnEdgeValues)


def test_a_model_that_reads_no_values_stays(served: GraphDataModule) -> None:
    model = build_model(GAT)
    assert with_edge_values(model, served) is model
