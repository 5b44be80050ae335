from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import AGIA, Budget, MetaGIA
from robust_diffusion.attacks.injection.candidate_edges import Candidates, project
from tests.attacks import contract
from tests.attacks.contract import graph, victim_and_task

BUDGET = Budget(8, 4, (-0.94, 0.94))
run = partial(contract.run, budget=BUDGET)


@pytest.mark.parametrize("attack", [MetaGIA, AGIA])
def test_edges_go_to_the_one_target_that_can_be_lost(attack: type[MetaGIA | AGIA]) -> None:
    """Target 3 alone is undecided: the others are sure beyond the reach of one new node."""
    n = 6
    x = torch.zeros(n, 2)
    x[:, 0] = 1000.0
    x[3, 0] = 0.1

    def model(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        src, dst = edge_index
        sent = x[src] if edge_weight is None else edge_weight[:, None] * x[src]
        return x.index_add(0, dst, sent)

    data = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    made = attack(num_rounds=3, num_steps=50)
    budget = Budget(3, 1, (-1.0, 1.0))
    perturbed = run(made, budget=budget, model=model, data=data, targets=torch.arange(n))
    src, dst = perturbed.edge_index
    assert dst[src >= n].tolist() == [3, 3, 3]


@pytest.fixture
def candidates() -> Candidates:
    attacked = victim_and_task()
    new = torch.full((3, 16), 0.4)
    return Candidates(*attacked, torch.cat([graph().x, new]), graph().edge_index, 3, 4.0)


def test_slope_is_the_difference_quotient(candidates: Candidates) -> None:
    weight = torch.rand(3, 60, generator=torch.Generator().manual_seed(0))
    slope, step = candidates.slope(weight), 1e-2
    for i, j in ((0, 0), (1, 7), (2, 59)):
        shift = torch.zeros_like(weight)
        shift[i, j] = step
        quotient = (candidates.loss(weight + shift) - candidates.loss(weight - shift)) / (2 * step)
        assert slope[i, j].item() == pytest.approx(quotient.item(), rel=0.05, abs=2e-5)


def test_exchanges_never_lower_the_loss(candidates: Candidates) -> None:
    chosen = torch.zeros(3, 60, dtype=torch.bool)
    chosen[:, :6] = True
    for swap_ratio in (0.01, 0.2, 1.0):
        better = MetaGIA(swap_ratio=swap_ratio).choose(candidates, chosen)
        assert better.sum(1).tolist() == [6, 6, 6]
        assert (better & ~chosen).sum() <= max(1, swap_ratio * 18)
        assert candidates.loss(better.float()) > candidates.loss(chosen.float())


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.lists(st.floats(-2, 3, width=32), min_size=4, max_size=4), min_size=1, max_size=4
    ),
    total=st.integers(0, 4),
)
def test_projection_is_the_nearest_allowed_point(rows: list[list[float]], total: int) -> None:
    weight = torch.tensor(rows, dtype=torch.float64)
    nearest = project(weight, torch.full((len(rows),), total))
    assert nearest.min() >= 0
    assert nearest.max() <= 1
    assert nearest.sum(1).max() <= total + 1e-9
    # Nearest of a convex set: no allowed point lies on the far side.
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 4)
    for corner in corners[corners.sum(1) <= total]:
        assert (((weight - nearest) * (corner - nearest)).sum(1) < 1e-6).all()
