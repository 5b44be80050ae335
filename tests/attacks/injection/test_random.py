import pytest
import torch

from robust_diffusion.attacks import SPEIT, Budget, RandomInjection
from tests.attacks.contract import graph, run


@pytest.mark.parametrize(
    ("limits", "at_low", "at_high"),
    # Shares of a normal variable beyond the limits, in units of the larger of them.
    [((-1.0, 1.0), 0.1587, 0.1587), ((-0.5, 0.25), 0.1587, 0.3085), ((0.2, 0.4), 0.6915, 0.1587)],
)
def test_features_are_normal_and_clamped(
    limits: tuple[float, float], at_low: float, at_high: float
) -> None:
    features = run(RandomInjection(), budget=Budget(400, 3, limits)).x[graph().num_nodes :]
    low, high = torch.tensor(limits)
    assert (features == low).float().mean().item() == pytest.approx(at_low, abs=0.02)
    assert (features == high).float().mean().item() == pytest.approx(at_high, abs=0.02)
    assert features.unique().numel() > 500


def test_edges_are_those_of_speit() -> None:
    budget = Budget(20, 3, (-1.0, 1.0))
    random, speit = (run(a, budget=budget) for a in (RandomInjection(), SPEIT(num_steps=0)))
    assert torch.equal(random.edge_index, speit.edge_index)
