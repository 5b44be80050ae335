from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from robust_diffusion.attacks import GivenGraph
from robust_diffusion.errors import AttackError, ConfigError, DataError
from tests.attacks.contract import graph, run

EDGES = graph().edge_index[:, (graph().edge_index > 0).all(0)]  # of a graph whose node 0 is alone


def written(edges: Tensor, size: int = 200, weight: float = 1.0) -> Path:
    values = np.full(edges.size(1), weight, dtype=np.float32)
    path = Path("toy_meta_adj_0.1.npz")
    np.save("featurestoy_meta_adj_0.1.npy", np.zeros((size, 16)))
    sp.save_npz(path, sp.csr_matrix((values, tuple(edges.numpy())), shape=(size, size)))
    return path


def test_the_graph_is_that_of_the_file() -> None:
    path = written(EDGES)
    Path("featurestoy_meta_adj_0.1.npy").unlink()  # as it is where edges alone are flipped
    found = run(GivenGraph(path=path))
    assert torch.equal(found.x, graph().x)
    assert set(map(tuple, found.edge_index.T.tolist())) == set(map(tuple, EDGES.T.tolist()))


@pytest.mark.faults
@pytest.mark.parametrize(
    ("edges", "size", "weight"),
    [
        (EDGES[:, 1:], 200, 1.0),  # one way
        (EDGES, 200, 0.5),
        (torch.tensor([[3], [3]]), 200, 1.0),  # from a node to itself
        (EDGES, 300, 1.0),  # of injected nodes
    ],
)
def test_a_file_that_no_victim_can_be_trained_on(edges: Tensor, size: int, weight: float) -> None:
    with pytest.raises((AttackError, DataError), match=r"^[^\n]*adj_0\.1\.npz: [^\n]*$"):
        run(GivenGraph(path=written(edges, size, weight)))


@pytest.mark.faults
def test_a_file_must_be_named_and_be_there() -> None:
    with pytest.raises(ConfigError, match=r"^attacks\.given\.path=null: "):
        GivenGraph(path=None)
    with pytest.raises(DataError, match=r"^mine/adj\.npz: not found"):
        run(GivenGraph(path="adj.npz", data_dir="mine"))
