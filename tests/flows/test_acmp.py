import torch

from robust_diffusion.flows import ACMP
from robust_diffusion.solver import Solver
from tests import oracles
from tests.graphs import CHANNELS, NODES, build_flow, random_graph, random_signal

TIME = torch.tensor(0.0)
DEEP = {"well": 0.1}


def test_equals_the_forces_node_by_node() -> None:
    flow, graph, z = build_flow(ACMP, repulsion=0.3), random_graph(), random_signal()
    rates = random_signal(1, nodes=2)
    flow.raw_attraction.data, flow.raw_well.data = rates
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    key, query = flow.attention.key.weight, flow.attention.query.weight
    attended = oracles.attention(z, dense, key, query, 2)
    expected = oracles.acmp(z, dense, attended, *rates.sigmoid(), 0.3)
    torch.testing.assert_close(flow(TIME, z, graph), expected)


def test_the_well_is_as_deep_as_asked_for() -> None:
    torch.testing.assert_close(ACMP(CHANNELS, well=0.3).raw_well.sigmoid(), torch.full((5,), 0.3))


def test_nodes_repel_each_other_where_repulsion_exceeds_the_attention() -> None:
    graph, z = random_graph(weighted=False), random_signal()
    signs = [build_flow(ACMP, repulsion=b).edge_weights(z, graph).sign() for b in (0.0, 2.0)]
    assert (signs[0] > 0).all()
    assert (signs[1] < 0).all()


def test_the_cubic_force_at_its_start_is_stable_in_the_default_steps() -> None:
    """At a depth of 0.1 two steps throw such a state out of range."""
    z, graph, solver = 10 * random_signal(), random_graph(), Solver("implicit_adams", num_steps=2)
    ends = [solver.solve(build_flow(ACMP, **well), z, graph).abs().max() for well in ({}, DEEP)]
    assert ends[0] < 2 * z.abs().max()
    assert not ends[1] < 1e3
