import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.stability import Motion, evaluations, follow, motion, thinned
from robust_diffusion.flows import Beltrami, Flow, Frond, Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import MLP, GraphPDE
from robust_diffusion.operators import Graph

N, D = 12, 4


class Growing(Flow):
    """dZ/dt = rate Z, which leaves every bound where the rate is above 0."""

    rate = 1.0

    def edge_weights(self, z: Tensor, graph: Graph) -> Tensor:
        return torch.ones_like(graph.weight)

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        return self.rate * z


def edges() -> Tensor:
    pairs = torch.combinations(torch.arange(N))
    drawn = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))[:20]
    return torch.cat([pairs[drawn], pairs[drawn].flip(1)]).T


def model(**options: Any) -> GraphPDE:
    torch.manual_seed(0)
    return GraphPDE(5, D, 3, **options).eval()


def features() -> Tensor:
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(1))


def started(flow: Flow) -> Motion:
    generator = torch.Generator().manual_seed(2)
    state = torch.randn(N, D, generator=generator, dtype=torch.float64)
    graph = Graph.from_edge_index(edges(), num_nodes=N, dtype=torch.float64)
    flow = flow.double()
    return Motion(flow, flow.prepare(state, graph), state)


def test_a_trajectory_of_heat_is_the_matrix_exponential() -> None:
    own = started(Heat(D))
    weight = torch.zeros(N, N, dtype=torch.float64)
    carried = own.flow.edge_weights(own.state, own.graph)
    weight[own.graph.dst, own.graph.src] = carried
    minus_laplacian = weight - torch.eye(N, dtype=torch.float64)
    times = [0.0, 0.5, 3.0, 40.0]
    for t, z in zip(times, own.at(times), strict=True):
        assert torch.allclose(z, torch.matrix_exp(t * minus_laplacian) @ own.state, atol=1e-3)


def test_it_starts_where_the_layer_does() -> None:
    own = model(flow="beltrami", num_layers=3)
    before = copy.deepcopy(own.state_dict())
    started = motion(own, features(), edges(), layer=1)
    layers: Any = own.double().layers
    with torch.no_grad():
        graph = Graph.from_edge_index(edges(), num_nodes=N, dtype=torch.float64)
        z, graph = layers[0](features().double(), graph)
        state, _, _ = layers[1].enter(torch.relu(z), graph)
    assert torch.allclose(started.state, state)
    assert started.state.dtype == torch.float64
    assert all(torch.equal(before[name].double(), of) for name, of in own.state_dict().items())


def test_injected_nodes_shift_the_state_from_where_it_was() -> None:
    own = model(flow="heat")
    x = torch.cat([features(), 5 * torch.ones(1, 5)])
    new = torch.tensor([[N, 0], [0, N]])
    clean = motion(own, features(), edges())
    times = (0.0, 1.0, 3.0)
    rows = follow(clean, motion(own, x, torch.cat([edges(), new], 1)), times=times)
    assert rows[0]["shift"] == 0
    assert rows[2]["shift"] > 0.01
    untouched = follow(clean, motion(own, x, edges()), times=times)
    assert max(row["shift"] for row in untouched) < 1e-4


def test_both_graphs_are_thinned_alike() -> None:
    new = torch.tensor([[N, N + 1, N + 2], [0, 1, 2]])
    attacked = torch.cat([edges(), new, new.flip(0)], 1)
    kept, injected = [], []
    for seed in range(20):
        part = thinned(N, edges(), N, seed=seed)
        whole = thinned(N, attacked, N + 3, seed=seed)
        inside = whole[:, (whole < N).all(0)]
        assert torch.equal(inside, part)
        assert {(u, v) for u, v in part.T.tolist()} == {(v, u) for u, v in part.T.tolist()}
        injected.append(int((whole[0] >= N).sum()))
        kept.append(part.size(1))
    assert 0.8 * 40 < sum(kept) / len(kept) < 40
    assert 0 < sum(injected) / len(injected) < 3
    assert thinned(N, attacked, N + 3, seed=0, edges=1, injected=1).equal(attacked)


def test_heat_becomes_smooth_and_a_flow_that_grows_is_seen_to_grow() -> None:
    times = (0.0, 1.0, 5.0, 20.0, 100.0)
    rows = follow(started(Heat(D)), times=times)
    assert tuple(row["t"] for row in rows) == times
    assert rows[0] == {"t": 0.0, "energy": 1.0, "norm": 1.0, "overshoot": 0.0, "growth": 1.0}
    assert max(row["overshoot"] for row in rows) < 1e-4
    energies = [round(row["energy"], 9) for row in rows]
    assert energies == sorted(energies, reverse=True)
    grown = follow(started(Growing(D)), times=(0.0, 1.0, 2.0, 800.0))
    assert len(grown) == 3  # the trajectory ends where it is not finite
    assert grown[1]["growth"] == pytest.approx(math.e, rel=1e-3)
    assert grown[2]["energy"] == pytest.approx(math.e**4, rel=1e-3)
    assert grown[2]["overshoot"] > 1


@pytest.mark.parametrize(
    ("own", "layer", "key"),
    [
        (model(), 3, "--layer 3"),
        (model(), -4, "--layer -4"),
        (MLP(5, D, 3), 0, "--layer 0"),
        (model(flow=lambda d: Frond(d, order=0.5)), 0, "flow.order=0.5"),
    ],
)
def test_what_cannot_be_followed_is_refused(own: torch.nn.Module, layer: int, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        motion(own, features(), edges(), layer=layer)
    asked = model(flow=lambda d: Beltrami(d), solver=Solver("euler", num_steps=2))
    assert evaluations(asked, Solver("rk4", num_steps=5), features(), edges()) == 3 * 5 * 4
    assert asked.layers[0].solver.method == "euler"
