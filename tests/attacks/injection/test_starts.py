import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.attacks.injection.starts import STARTS
from robust_diffusion.attacks.problem import Problem
from tests.attacks.contract import clean, graph, trained

LIMITS = (-0.5, 0.25)


def problem() -> Problem:
    return Problem("any", trained(), clean(graph()), graph().index_test)


def start(name: str, seed: int = 0, nodes: int = 300) -> torch.Tensor:
    rows = [graph().index_test[:5]] * nodes
    return STARTS[name](problem(), rows, LIMITS, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", STARTS)
def test_starts_have_the_shape_and_type_of_features(name: str) -> None:
    found = start(name)
    assert found.shape == (300, 16)
    assert found.dtype == graph().x.dtype
    assert torch.equal(found, start(name))
    assert (name == "zero") == torch.equal(found, start(name, seed=1))


@pytest.mark.parametrize("name", STARTS)
def test_new_nodes_without_edges_start_too(name: str) -> None:
    rows = [graph().index_test[:0]] * 3
    found = STARTS[name](problem(), rows, LIMITS, torch.Generator().manual_seed(0))
    assert found.shape == (3, 16)


def test_uniform_fills_the_limits() -> None:
    found = start("uniform")
    assert -0.5 <= found.min() < -0.49
    assert 0.24 < found.max() <= 0.25
    assert found.mean().item() == pytest.approx(-0.125, abs=0.02)


@pytest.mark.parametrize("limits", [(-0.5, 0.25), (0.1, 0.5), (-0.5, 0.0)])
def test_small_features_spread_a_tenth_of_the_limits(limits: tuple[float, float]) -> None:
    rows = [graph().index_test[:1]] * 2000
    generator = torch.Generator().manual_seed(0)
    drawn = STARTS["small_normal"](problem(), rows, limits, generator)
    assert drawn.std().item() == pytest.approx(0.05, rel=0.02)
    assert drawn.mean().item() == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize("name", ["real", "runner_up"])
def test_real_features_are_those_of_nodes(name: str) -> None:
    assert (start(name)[:, None] == graph().x).all(2).any(1).all()


def test_runner_up_draws_nodes_of_the_second_best_class() -> None:
    """Targets 0 and 1 take class 0 for best and class 2 for second; node 3 alone is of class 2."""
    x = torch.tensor([[9.0, 0, 5], [9.0, 0, 5], [0, 99.0, 0], [0, 0, 99.0]])
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long))
    tried = Problem("any", lambda x, _: x, data, torch.tensor([0, 1]))
    rows = [torch.tensor([0, 1])] * 5
    found = STARTS["runner_up"](tried, rows, (-1.0, 1.0), torch.Generator().manual_seed(0))
    assert torch.equal(found, x[[3] * 5])
