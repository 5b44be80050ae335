import pytest
import torch

from robust_diffusion.flows import Heat, HeatPlus
from tests.graphs import NODES, build_flow, random_graph, random_signal

TIME = torch.tensor(0.0)
WEIGHTS = ["uniform", "frozen_attention"]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("diffusivity", [1e-4, 0.3, 1.0, 2.0, 60.0])
def test_it_is_heat_at_another_speed(diffusivity: float, weights: str) -> None:
    z, given = random_signal(), random_graph()
    plus = build_flow(HeatPlus, diffusivity=diffusivity, weights=weights)
    heat = build_flow(Heat, weights=weights)
    graph = heat.prepare(z, given)
    torch.testing.assert_close(plus.prepare(z, given).weight, graph.weight)
    torch.testing.assert_close(
        plus(TIME, z, graph), diffusivity * heat(TIME, z, graph), rtol=1e-5, atol=1e-9
    )


def test_the_diffusivity_is_all_that_is_learned() -> None:
    flow = build_flow(HeatPlus)
    assert {name for name, _ in flow.named_parameters()} == {"raw_diffusivity"}
    (flow(TIME, random_signal(), random_graph()) * random_signal(1)).sum().backward()
    assert flow.raw_diffusivity.grad is not None
    assert flow.raw_diffusivity.grad.abs() > 1e-6


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("learning_rate", [0.1, 5.0])
def test_the_diffusivity_stays_positive_after_wild_steps(sign: int, learning_rate: float) -> None:
    flow, graph, z = build_flow(HeatPlus).float(), random_graph(), random_signal().float()
    optimizer = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    graph = type(graph)(graph.src, graph.dst, graph.weight.float(), NODES)
    for _ in range(15):
        optimizer.zero_grad()
        (sign * 1e3 * flow(TIME, z, graph).square().sum()).backward()
        optimizer.step()
    assert 0 < flow.diffusivity.item() < float("inf")
    assert abs(flow.diffusivity.item() - 1) > 0.1
    assert flow(TIME, z, graph).isfinite().all()


def test_gradient_goes_on_where_the_diffusivity_is_small() -> None:
    flow = build_flow(HeatPlus, diffusivity=1e-12)
    (flow(TIME, random_signal(), random_graph()) * random_signal(1)).sum().backward()
    assert flow.raw_diffusivity.grad is not None
    assert flow.raw_diffusivity.grad != 0
    assert flow.diffusivity.item() == pytest.approx(1e-12, rel=1e-4)
