import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks.climb import Found, Steps
from robust_diffusion.attacks.injection.placement import Placement, reallocate
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.errors import AttackError
from tests.attacks.contract import clean, graph, trained

LIMITS = (-9.0, 9.0)


def start(
    links: int = 0, capacity: int = 12, model: object = None
) -> tuple[Problem, Placement, Tensor]:
    tried = Problem("any", model or trained(), clean(graph()), graph().index_test)
    generator = torch.Generator().manual_seed(0)
    rows = [tried.targets[torch.randperm(60, generator=generator)[:12]] for _ in range(6)]
    features = torch.where(tried.x[rows[0][:6]] > 0, -9.0, 9.0)
    return tried, Placement.of(tried, rows, [capacity] * 6, links), features


def no_weights(x: Tensor, edge_index: Tensor) -> Tensor:
    return trained()(x, edge_index)


def without_gradient(x: Tensor, edge_index: Tensor) -> Tensor:
    return trained()(x, edge_index).detach()


def test_links_join_each_node_to_its_neighbours_on_a_ring() -> None:
    tried, placement, _ = start(links=4)
    edges = placement.edges(tried.edge_index)
    linked = edges[:, (edges >= 200).all(0)]
    assert (linked[0] != linked[1]).all()
    assert torch.equal(linked[0].bincount()[200:], torch.full((6,), 4))
    assert edges.unique(dim=1).size(1) == edges.size(1)
    assert torch.equal(edges.flip(0).unique(dim=1), edges.unique(dim=1))


def test_the_gain_of_an_edge_is_the_slope_of_all_margins() -> None:
    """By differences over the weight of one edge that is there and of one that is not."""
    tried, placement, features = start(links=2)
    gains, margins = placement.gains(tried, features)
    assert torch.allclose(margins, placement.margins(tried, features), atol=1e-4)
    every = Placement(
        torch.ones_like(placement.chosen), tried.targets, placement.links, placement.capacity, 200
    )
    edges, old = every.edges(tried.edge_index), tried.edge_index.size(1)
    x = torch.cat([tried.x, features]).double()
    model = trained().double()
    for i, j in ((0, placement.chosen[0].int().argmax()), (1, placement.chosen[1].int().argmin())):
        sums = []
        for step in (-1e-4, 1e-4):
            weight = placement.chosen.double()
            weight[i, j] += step
            flat = weight.flatten()
            ones = flat.new_ones(old), flat, flat, flat.new_ones(2 * placement.links.size(1))
            logits = model(x, edges, torch.cat(ones))[tried.targets]
            own = logits.gather(1, tried.labels[:, None])
            best = logits.scatter(1, tried.labels[:, None], -torch.inf).max(1, keepdim=True).values
            sums.append((best - own).sum())
        assert gains[i, j].item() == pytest.approx(((sums[1] - sums[0]) / 2e-4).item(), rel=1e-2)
    trained().float()


@pytest.mark.parametrize("model", [None, no_weights])
def test_trimmed_edges_were_not_needed(model: object) -> None:
    tried, placement, features = start(model=model)
    lost = placement.margins(tried, features) > 0
    trimmed = placement.trimmed(tried, features)
    assert not (trimmed.chosen & ~placement.chosen).any()
    assert torch.equal(trimmed.chosen[:, ~lost], placement.chosen[:, ~lost])
    assert trimmed.chosen.sum() < placement.chosen.sum()


@pytest.mark.parametrize("left_out", [0.0, 1.0])
def test_allotted_edges_go_to_targets_that_are_right(left_out: float) -> None:
    tried, placement, features = start(capacity=14)
    lost = placement.margins(tried, features) > 0
    new = placement.allotted(tried, features, left_out, torch.Generator().manual_seed(0)).chosen
    assert torch.equal(new[:, lost], placement.chosen[:, lost])
    assert (new.sum(1) <= 14).all()
    assert new[:, ~lost].any() == (left_out == 0)


@pytest.mark.parametrize("model", [None, no_weights])
def test_edges_that_move_take_more_than_edges_that_stay(model: object) -> None:
    tried, placement, features = start(model=model)
    before = int((placement.margins(tried, features) <= 0).sum())
    found = Found(features, before, 0.0)
    generator = torch.Generator().manual_seed(0)
    edges, best = reallocate(tried, placement, found, Steps(), LIMITS, 4, 15, generator)
    assert best.right == int((edges.margins(tried, best.features) <= 0).sum()) < before
    assert (edges.chosen.sum(1) <= 12).all()


def test_a_model_without_gradient_is_given_up() -> None:
    tried, placement, features = start(
        model=lambda x, edge_index: trained()(x.detach(), edge_index)
    )
    with pytest.raises(AttackError):
        reallocate(
            *(tried, placement, Found(features, 60, 0.0), Steps(), LIMITS, 1, 3),
            torch.Generator().manual_seed(0),
        )
