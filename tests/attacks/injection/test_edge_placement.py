import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from robust_diffusion.attacks.base import Problem
from robust_diffusion.attacks.injection.base import STARTS
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.features import neighbourhood, similarity
from tests.attacks.contract import clean, graph, problem, trained
from tests.graphs import both_ways


def placed() -> tuple[Problem, torch.Tensor, Placement]:
    tried, generator = problem(), torch.Generator().manual_seed(0)
    rows = [tried.targets[torch.randperm(60, generator=generator)[:12]] for _ in range(6)]
    features = torch.where(tried.x[rows[0][:6]] > 0, -9.0, 9.0)
    return tried, features, Placement.of(tried, rows, [20] * 6, 2)


def test_gains_try_each_node_at_each_open_target() -> None:
    tried, features, placement = placed()
    open_ = torch.arange(60) % 2 == 0
    gains = placement.gains(tried, features, open_)
    assert torch.equal(gains.isfinite(), open_ & ~placement.chosen)


@pytest.mark.parametrize("keep", [False, True])
def test_allotted_edges_stay_within_each_nodes_capacity(keep: bool) -> None:
    tried, features, placement = placed()
    right = placement.margins(tried, features) <= 0
    generator = torch.Generator().manual_seed(0)
    after = placement.allotted(tried, features, 0.0, generator, keep=keep)
    assert (after.chosen.sum(1) <= 20).all()
    assert torch.equal(after.chosen[:, ~right], placement.chosen[:, ~right])
    assert not keep or (after.chosen | ~placement.chosen).all()


def test_neighbourhood_is_the_normalised_sum_over_the_neighbours() -> None:
    # Nodes 0 - 1 - 2 and 3; new 4 at 0 and 1, new 5 alone, new 6 at 3.
    edges = both_ways([(0, 1), (1, 2), (4, 0), (4, 1), (6, 3)])
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    dense = to_dense_adj(edges, max_num_nodes=7)[0]
    scale = dense.sum(1).clamp(min=1).rsqrt()
    expected = scale[4:, None] * dense[4:, :4] @ (scale[:4, None] * x)
    torch.testing.assert_close(neighbourhood(x, edges, 3), expected)


def test_similarity_has_a_bounded_gradient_at_0() -> None:
    around = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    new = torch.zeros(2, 2, requires_grad=True)
    value = similarity(new, around)
    assert value.tolist() == [0, 0]
    (gradient,) = torch.autograd.grad(value.sum(), new)
    # The neighbourhood's direction, over a tenth of its length.
    torch.testing.assert_close(gradient, torch.tensor([[0.6, 0.8], [0.0, 0.0]]) / 0.5)


def share(name: str, degrees: list[int], seed: int = 0, *, targets: int = 60) -> list[Tensor]:
    tried = Problem("any", trained(), clean(graph()), graph().index_test[:targets])
    state = (tried.x, tried.edge_index)
    return SHARINGS[name](tried, state, degrees, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SHARINGS)
@pytest.mark.parametrize("degrees", [[5, 5, 5], [60] * 4, [7, 6, 0], [1], [0, 0], [9] * 30])
def test_each_node_gets_its_number_of_distinct_targets(name: str, degrees: list[int]) -> None:
    rows = share(name, degrees)
    got = [row.numel() for row in rows]
    assert got == degrees or (name == "apart" and max(got) < max(degrees) == 60)
    for row in rows:
        assert row.unique().numel() == row.numel()
        assert torch.isin(row, graph().index_test).all()


@settings(max_examples=30)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_equal_shares_differ_by_one_edge_at_most(degrees: list[int]) -> None:
    chosen = torch.cat(share("equal", degrees, targets=12))
    used = torch.tensor([int((chosen == target).sum()) for target in graph().index_test[:12]])
    assert used.max() - used.min() <= 1


def test_sequential_takes_the_targets_nearest_to_being_lost() -> None:
    """Lead of the label over the next class: 0 is sure, 1 and 3 are not, 2 is lost already."""
    x = torch.tensor([[9.0, 0], [1.0, 0], [0, 1.0], [2.0, 0], [5.0, 0]])
    y = torch.zeros(5, dtype=torch.long)
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long), y=y)
    problem = Problem("any", lambda x, _: x, data, torch.arange(5))
    state = (problem.x, problem.edge_index)
    (row,) = SHARINGS["sequential"](problem, state, [3], torch.Generator())
    assert sorted(row.tolist()) == [1, 3, 4]


RANGE = (-0.5, 0.25)


def started(name: str, seed: int = 0, nodes: int = 300) -> torch.Tensor:
    rows = [graph().index_test[:5]] * nodes
    return STARTS[name](problem(), rows, RANGE, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", STARTS)
def test_starts_have_the_shape_and_type_of_features(name: str) -> None:
    found = started(name)
    assert found.shape == (300, 16)
    assert found.dtype == graph().x.dtype
    assert torch.equal(found, started(name))
    assert (name == "zero") == torch.equal(found, started(name, seed=1))
    without_edges = [graph().index_test[:0]] * 3
    found = STARTS[name](problem(), without_edges, RANGE, torch.Generator().manual_seed(0))
    assert found.shape == (3, 16)


def test_runner_up_draws_nodes_of_the_second_best_class() -> None:
    """Targets 0 and 1 take class 0 for best and class 2 for second; node 3 alone is of class 2."""
    x = torch.tensor([[9.0, 0, 5], [9.0, 0, 5], [0, 99.0, 0], [0, 0, 99.0]])
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long))
    tried = Problem("any", lambda x, _: x, data, torch.tensor([0, 1]))
    rows = [torch.tensor([0, 1])] * 5
    found = STARTS["runner_up"](tried, rows, (-1.0, 1.0), torch.Generator().manual_seed(0))
    assert torch.equal(found, x[[3] * 5])
