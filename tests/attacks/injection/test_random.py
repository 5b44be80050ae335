import pytest
import torch

from robust_diffusion.attacks import SPEIT, Budget, PerturbedGraph, RandomInjection
from tests.attacks.contract import clean, graph, trained


def run(limits: tuple[float, float], nodes: int = 400) -> PerturbedGraph:
    generator = torch.Generator().manual_seed(0)
    budget = Budget(nodes, 3, limits)
    return RandomInjection()(trained(), clean(graph()), graph().index_test, budget, generator)


@pytest.mark.parametrize(
    ("limits", "at_low", "at_high"),
    # Shares of a normal variable beyond the limits, in units of the larger of them.
    [((-1.0, 1.0), 0.1587, 0.1587), ((-0.5, 0.25), 0.1587, 0.3085), ((0.2, 0.4), 0.6915, 0.1587)],
)
def test_features_are_normal_and_clamped(
    limits: tuple[float, float], at_low: float, at_high: float
) -> None:
    features = run(limits).x[graph().num_nodes :]
    low, high = torch.tensor(limits)
    assert (features == low).float().mean().item() == pytest.approx(at_low, abs=0.02)
    assert (features == high).float().mean().item() == pytest.approx(at_high, abs=0.02)
    assert features.unique().numel() > 500


def test_edges_are_those_of_speit() -> None:
    generator = torch.Generator().manual_seed(0)
    budget = Budget(20, 3, (-1.0, 1.0))
    speit = SPEIT(num_steps=0)(trained(), clean(graph()), graph().index_test, budget, generator)
    assert torch.equal(run((-1.0, 1.0), nodes=20).edge_index, speit.edge_index)
