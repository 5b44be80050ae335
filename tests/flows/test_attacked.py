"""White-box attacks through the flows of second order, of reactions and of a memory."""

from itertools import cycle

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Data

from robust_diffusion import PRBCD, SPEIT, Budget, GraphPDE, Solver, attack
from tests.attacks.graphs import small_graph
from tests.backends import BACKENDS, backend

FLOWS = ["graphcon", "hang", "hang_quad", "gread", "grand_pp", "blend", "acmp", "frond"]
FLIPS = Budget(0, 0, node_ratio=0, edge_ratio=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "name"), zip(FLOWS, cycle(BACKENDS)))
def test_gradient_steps_raise_the_loss(flow: str, name: str) -> None:
    data = small_graph()
    torch.manual_seed(0)
    model = GraphPDE(16, 8, 7, flow=flow, solver=Solver("rk4", num_steps=2), num_layers=2).eval()

    def loss(on: Data) -> float:
        with torch.no_grad():
            logits = model(on.x, on.edge_index)[data.index_test]
        return F.cross_entropy(logits, data.y[data.index_test]).item()

    def injected(steps: int) -> Data:
        by = SPEIT(num_steps=steps)
        return attack(model, data, Budget(4, 20), by, labels="true").to_data()

    with backend(name):
        flipped = attack(model, data, FLIPS, PRBCD(num_steps=10), labels="true").to_data()
        # From the first step on: at SPEIT's start, 0, LayerNorm is steeper than any step is short.
        assert loss(injected(40)) > loss(injected(1)) + 1e-4
        assert loss(flipped) > loss(data) + 1e-4
