from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks.climb import Found
from robust_diffusion.attacks.injection.placement import Placement
from robust_diffusion.attacks.injection.search import search
from robust_diffusion.attacks.injection.sharing import SHARINGS
from robust_diffusion.attacks.problem import Problem
from tests.attacks.contract import clean, graph, trained

LIMITS = (-0.9, 0.9)


def found(model: Callable[..., Tensor], steps: int) -> tuple[Problem, Placement, Found]:
    tried = Problem("any", model, clean(graph()), graph().index_test)
    generator = torch.Generator().manual_seed(0)
    rows = SHARINGS["apart"](tried, (tried.x, tried.edge_index), [12] * 12, generator)
    placement = Placement.of(tried, rows, [12] * 12, 0)
    return tried, placement, search(tried, placement, LIMITS, steps, generator)


def sampled(x: Tensor, edge_index: Tensor) -> Tensor:
    """Edges dropped at random, alike in every pass."""
    kept = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(1)) < 0.9
    return trained()(x, edge_index[:, kept])


def quantised(x: Tensor, edge_index: Tensor) -> Tensor:
    return trained()((x * 50).round() / 50, edge_index)


def without_gradient(x: Tensor, edge_index: Tensor) -> Tensor:
    return trained()(x, edge_index).detach()


@pytest.mark.parametrize("model", [sampled, quantised, without_gradient])
def test_it_needs_no_gradient(model: Callable[..., Tensor]) -> None:
    tried, placement, best = found(model, 40)
    assert not best.features.requires_grad
    assert best.features.min() >= LIMITS[0]
    assert best.features.max() <= LIMITS[1]
    x = torch.cat([tried.x, best.features])
    assert best.right == tried.right(x, placement.edges(tried.edge_index))
    drawn = torch.rand(12, x.size(1), generator=torch.Generator().manual_seed(0)) * 1.8 - 0.9
    assert best.right < (placement.margins(tried, drawn) <= 0).sum() - 3


def test_more_steps_never_lose_what_is_there() -> None:
    ranks = [found(trained(), steps)[2].rank for steps in (0, 1, 30)]
    assert ranks == sorted(ranks, reverse=True)
