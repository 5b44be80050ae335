import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.data.views import induced_view

NODES = torch.tensor([1, 2, 4])


@pytest.fixture
def path() -> Data:
    """0 - 1 - 2 - 3 - 4, and 1 - 4."""
    half = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 4, 4]])
    return Data(
        x=torch.arange(10.0).reshape(5, 2),
        y=torch.arange(5),
        edge_index=torch.cat([half, half.flip(0)], 1),
    )


def test_keeps_the_nodes_and_the_edges_among_them(path: Data) -> None:
    view = induced_view(path, NODES, NODES[:1], degree_leak=False)
    assert torch.equal(view.x, path.x[NODES])
    assert view.y.tolist() == [1, 2, 4]
    assert view.n_id.tolist() == [1, 2, 4]
    assert view.mask.tolist() == [True, False, False]
    # 1 - 2 and 1 - 4, relabelled to 0 - 1 and 0 - 2.
    assert sorted(view.edge_index.T.tolist()) == [[0, 1], [0, 2], [1, 0], [2, 0]]
    assert "degree" not in view


def test_leaked_degrees_are_of_the_whole_graph(path: Data) -> None:
    view = induced_view(path, NODES, NODES, degree_leak=True)
    assert view.degree.tolist() == [4, 3, 3]
    assert view.degree.dtype == view.x.dtype


def test_the_graph_is_not_changed(path: Data) -> None:
    before = path.clone()
    induced_view(path, NODES, NODES, degree_leak=True)
    assert path.keys() == before.keys()
    assert all(torch.equal(path[key], before[key]) for key in before.keys())  # noqa: SIM118
