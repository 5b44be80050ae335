from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from robust_diffusion import GraphPDE, Solver
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.gradient_ascent import Found, StepRule
from robust_diffusion.attacks.injection import edge_placement, part
from robust_diffusion.attacks.injection.base import STARTS
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.features import neighbourhood, similarity
from robust_diffusion.attacks.injection.part import Climb, Injection
from robust_diffusion.attacks.task import Task
from robust_diffusion.errors import TrainingError
from robust_diffusion.models import GAT, GCN, BeltramiGuard, GNNGuard
from robust_diffusion.models.victim import Victim
from tests.attacks.contract import clean, graph, state, trained, victim_and_task
from tests.attacks.graphs import mean_of_neighbours, nan_gradient, without_gradient
from tests.graphs import both_ways

Attacked = tuple[Victim, Task]


def placed() -> tuple[Attacked, torch.Tensor, Placement]:
    (victim, task), generator = victim_and_task(), torch.Generator().manual_seed(0)
    rows = [task.targets[torch.randperm(60, generator=generator)[:12]] for _ in range(6)]
    features = torch.where(task.x[rows[0][:6]] > 0, -9.0, 9.0)
    return (victim, task), features, Placement.of(task, rows, [20] * 6, 2)


def test_gains_try_each_node_at_each_open_target() -> None:
    tried, features, placement = placed()
    open_ = torch.arange(60) % 2 == 0
    before = placement.margins(*tried, features)
    gains = placement.gains(*tried, features, open_, before)
    assert torch.equal(gains.isfinite(), open_ & ~placement.chosen)


@pytest.mark.parametrize("keep", [False, True])
def test_allotted_edges_stay_within_each_nodes_capacity(keep: bool) -> None:
    tried, features, placement = placed()
    right = placement.margins(*tried, features) <= 0
    generator = torch.Generator().manual_seed(0)
    after = placement.allotted(*tried, features, 0.0, generator, keep=keep, by_slopes=keep)
    assert (after.chosen.sum(1) <= 20).all()
    assert torch.equal(after.chosen[:, ~right], placement.chosen[:, ~right])
    assert not keep or (after.chosen | ~placement.chosen).all()


class Unweighted(nn.Module):
    """Two layers of PyG, whose messages are weighed by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([pyg.GraphConv(16, 8), pyg.GraphConv(8, 7)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x


euler = partial(GraphPDE, solver=Solver("euler", num_steps=1), num_layers=2)
FORMS: dict[str, Callable[[], nn.Module]] = {
    "gcn": partial(GCN, 16, 8, out_channels=7, num_layers=2),
    "gat": partial(GAT, 16, 8, out_channels=7, num_layers=2),
    "guard": partial(GNNGuard, 16, 8, out_channels=7, num_layers=2),
    "beltrami": partial(euler, 16, 8, out_channels=7),
    "grand": partial(euler, 16, 8, out_channels=7, flow="grand"),
    "adjoint": partial(
        GraphPDE,
        16,
        8,
        out_channels=7,
        flow="heat",
        num_layers=1,
        solver=Solver("rk4", adjoint=True),
    ),
    "beltrami_guard": partial(
        BeltramiGuard, 16, 8, out_channels=7, solver=Solver("euler", num_steps=1), num_layers=2
    ),
    "mean": partial(GCN, 16, 8, out_channels=7, num_layers=2),
    "unweighted": Unweighted,
}


def doubled(model: nn.Module, draws: int = 1) -> tuple[Attacked, Tensor, Placement]:
    """A model in double precision, and four nodes with edges, two of which are linked."""
    data = clean(graph())
    data.x = data.x.double()
    targets = graph().index_test[:20]
    model.double().eval().requires_grad_(requires_grad=False)
    victim = Victim(model, data.x, data.edge_index, draws=draws)
    victim, task = victim_and_task(victim, data, targets)
    rows = [targets[:5], targets[3:9], targets[:0], targets[15:]]
    placement = replace(Placement.of(task, rows, [6] * 4, 0), links=torch.tensor([[0], [2]]))
    return (victim, task), data.x[:4] + 0.1 * data.x[4:8], placement


@pytest.mark.parametrize("name", FORMS)
def test_slopes_are_the_difference_quotients_of_all_targets_margins(name: str) -> None:
    torch.manual_seed(0)
    tried, features, placement = doubled(FORMS[name](), draws=1 + (name == "mean"))
    (victim, task) = tried
    slopes = placement.slopes(*tried, features)
    assert slopes is not None
    assert slopes.dtype == torch.float64

    def total(weight: Tensor) -> float:
        every = replace(placement, chosen=torch.ones_like(placement.chosen))
        edges = every.edges(task.edge_index)
        ones = weight.new_ones(task.edge_index.size(1))
        weights = torch.cat([ones, weight.flatten(), weight.flatten(), weight.new_ones(2)])
        with torch.no_grad():
            logits = victim(torch.cat([task.x, features]), edges, weights)[task.targets]
        return edge_placement.margins(logits, task.labels).tanh().sum().item()

    present, step = placement.chosen.double(), 1e-6
    for i, j in ((0, 0), (0, 12), (1, 4), (2, 7), (3, 19)):  # there or not, of a node without any
        inward = torch.zeros_like(present)
        inward[i, j] = -step if placement.chosen[i, j] else step
        # Of second order, to one side: a weight is neither below 0 nor above 1.
        values = [total(present + n * inward) for n in range(3)]
        quotient = (4 * values[1] - 3 * values[0] - values[2]) / (2 * inward[i, j].item())
        assert slopes[i, j].item() == pytest.approx(quotient, rel=1e-3, abs=1e-6)


def test_slopes_of_the_adaptive_form_see_edges_that_a_guard_prunes() -> None:
    torch.manual_seed(0)
    model = GNNGuard(16, 8, out_channels=7, num_layers=2)
    (own, task), features, placement = doubled(model)
    exact, through = (placement.slopes(of, task, features) for of in (own, own.adaptive()))
    assert exact is not None
    assert through is not None
    assert (exact == 0).sum() > (through == 0).sum()


def test_slopes_leave_model_and_gradient_mode_as_they_are() -> None:
    model = GCN(16, 8, out_channels=7)
    tried, features, placement = doubled(model)
    before = state(model)
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            assert (placement.slopes(*tried, features) is None) != mode
            assert torch.is_grad_enabled() == mode
    assert state(model) == before
    assert not features.requires_grad


class FailsBackwards(torch.autograd.Function):
    """The adjoint's solver may need more steps backwards if there are absent edges as well."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.fails = bool((weight == 0).any())
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        if ctx.fails:
            raise TrainingError("solver.max_nfe=100: dopri5 was at t=0.5 of 1")
        return slope


def fails_backwards(x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    given = None if weight is None else FailsBackwards.apply(weight)  # type: ignore[no-untyped-call]
    return mean_of_neighbours(x, edges, given)


def singular(x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """As steep where an edge is absent as attention, whose slopes there are of 1e16 and more."""
    return mean_of_neighbours(x, edges, None if weight is None else (weight + 1e-20).sqrt())


def diluted(x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """Normalised over all edges, those of weight 0 among them."""
    degree = x.new_ones(len(x)).index_add(0, edges[1], x.new_ones(edges.size(1)))
    return mean_of_neighbours(x, edges, weight) / degree[:, None]


@pytest.mark.parametrize(
    "model",
    [
        lambda x, edges: mean_of_neighbours(x, edges),
        singular,
        diluted,
        without_gradient,
        nan_gradient,
        fails_backwards,
    ],
    ids=["weightless", "singular", "diluted", "without", "nan", "failing"],
)
def test_without_slopes_edges_move_by_measured_gains(model: Callable[..., Tensor]) -> None:
    tried, (_, features, placement) = victim_and_task(model), placed()
    assert placement.slopes(*tried, features) is None
    generator = torch.Generator().manual_seed(0)
    after = placement.allotted(*tried, features, 0.0, generator, keep=True, by_slopes=True)
    assert (after.chosen & ~placement.chosen).any()


def test_no_edge_goes_where_the_model_diverges() -> None:
    tried, features, placement = placed()
    (end, *_), *_ = (placement.margins(*tried, features) <= 0).nonzero().tolist()
    victim, task = tried
    node = task.targets[end]
    most = (placement.edges(task.edge_index)[1] == node).sum()

    def diverges(x: Tensor, edges: Tensor) -> Tensor:
        logits = trained()(x, edges)
        logits[node] += torch.where((edges[1] == node).sum() > most, torch.nan, 0.0)
        return logits

    generator = torch.Generator().manual_seed(0)
    after = placement.allotted(
        victim.form(diverges), task, features, 0.0, generator, keep=True, by_slopes=True
    )
    assert torch.equal(after.chosen[:, end], placement.chosen[:, end])
    assert (after.chosen & ~placement.chosen).any()


def test_a_kind_of_move_is_repeated_as_long_as_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, features, placement = placed()
    moves: list[tuple[bool, bool]] = []
    left = [50, 40, 35, 35, 35, 35, 30, 30]  # targets still right at first and after each move

    def allotted(self: Placement, *_: Any, keep: bool, by_slopes: bool) -> Placement:
        moves.append((keep, by_slopes))
        return self

    found = Found(features, 50, 0.0)
    monkeypatch.setattr(Placement, "allotted", allotted)
    fits = (replace(found, right=right) for right in sorted(2 * left, reverse=True)[1:])
    monkeypatch.setattr(part, "climb", lambda *_: next(fits))
    (victim, task), budget = tried, Budget(6, 20, feature_limits=(-9.0, 9.0))
    bound = "white box: equal, masked", victim, victim, task, budget, 1, torch.Generator()
    Climb(*bound, "equal", StepRule(loss="masked"), moves=7).improve(Injection(placement, found))
    first, second, third, fourth = AUTO.moves
    assert moves == [first, first, first, second, third, fourth, fourth]


def test_slopes_of_too_many_edges_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, features, placement = placed()
    monkeypatch.setattr(edge_placement, "AUTO", replace(AUTO, most_slopes=6 * 60))
    assert placement.slopes(*tried, features) is not None
    monkeypatch.setattr(edge_placement, "AUTO", replace(AUTO, most_slopes=6 * 60 - 1))
    assert placement.slopes(*tried, features) is None


def test_edges_are_assigned_part_by_part_if_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix of free edges by targets is bounded, and no part takes the place of another."""
    (victim, task), features, placement = placed()
    entries = []

    def assign(worth: np.ndarray, *, maximize: bool) -> Any:
        entries.append(worth.size)
        return linear_sum_assignment(worth, maximize=maximize)

    monkeypatch.setattr(edge_placement, "AUTO", replace(AUTO, most_slopes=6 * 60 - 1))
    monkeypatch.setattr(edge_placement, "linear_sum_assignment", assign)
    generator = torch.Generator().manual_seed(0)
    after = placement.allotted(victim, task, features, 0.0, generator, keep=False, by_slopes=False)
    assert len(entries) > 1
    assert max(entries) < 6 * 60
    assert (after.chosen.sum(1) <= after.capacity).all()
    right = placement.margins(victim, task, features) <= 0
    assert after.chosen[:, right].any()
    assert torch.equal(after.chosen[:, ~right], placement.chosen[:, ~right])


@pytest.mark.parametrize(("is_weighed", "end"), [(True, 1), (False, 0)])
def test_an_edge_goes_where_it_harms_most_targets_if_weights_say_so(
    is_weighed: bool, end: int
) -> None:
    """Two targets can be had; behind the second, which falls less far, are two more."""
    share = torch.tensor([1.0, 0.9, 0.0, 0.0])
    behind = torch.tensor([[1, 1], [2, 3]])

    def model(x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edges.size(1)) if weight is None else weight
        sent = x.new_zeros(len(x)).index_add(0, edges[1], weight * x[edges[0], 0])
        sent = torch.cat([share, x.new_zeros(len(x) - 4)]) * sent
        sent = sent.index_add(0, behind[1], 0.8 * sent[behind[0]])
        return torch.stack([x.new_full((len(x),), 0.5), sent], 1)

    def weightless(x: Tensor, edges: Tensor) -> Tensor:
        return model(x, edges)

    data = Data(x=torch.zeros(4, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    tried = victim_and_task(model if is_weighed else weightless, data, torch.arange(4))
    placement = Placement.of(tried[1], [torch.empty(0, dtype=torch.long)], [1], 0)
    features, generator = torch.ones(1, 1), torch.Generator()
    after = placement.allotted(*tried, features, 0.0, generator, keep=True, by_slopes=True)
    assert after.chosen.nonzero().tolist() == [[0, end]]


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
    victim, task = victim_and_task(targets=graph().index_test[:targets])
    state = (task.x, task.edge_index)
    return SHARINGS[name](victim, task, state, degrees, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SHARINGS)
@pytest.mark.parametrize("degrees", [[60] * 4, [7, 6, 0], [9] * 30])
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
    victim, task = victim_and_task(lambda x, _: x, data, torch.arange(5))
    state = (task.x, task.edge_index)
    (row,) = SHARINGS["sequential"](victim, task, state, [3], torch.Generator())
    assert sorted(row.tolist()) == [1, 3, 4]


RANGE = (-0.5, 0.25)


def started(name: str, seed: int = 0, nodes: int = 300) -> torch.Tensor:
    rows = [graph().index_test[:5]] * nodes
    return STARTS[name](
        *victim_and_task(), rows, Budget(feature_limits=RANGE), torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("name", STARTS)
def test_starts_have_the_shape_and_type_of_features(name: str) -> None:
    found = started(name)
    assert found.shape == (300, 16)
    assert found.dtype == graph().x.dtype
    assert torch.equal(found, started(name))
    assert (name == "zero") == torch.equal(found, started(name, seed=1))
    without_edges = [graph().index_test[:0]] * 3
    found = STARTS[name](
        *victim_and_task(),
        without_edges,
        Budget(feature_limits=RANGE),
        torch.Generator().manual_seed(0),
    )
    assert found.shape == (3, 16)


def test_runner_up_draws_nodes_of_the_second_best_class() -> None:
    """Targets 0 and 1 take class 0 for best and class 2 for second; node 3 alone is of class 2."""
    x = torch.tensor([[9.0, 0, 5], [9.0, 0, 5], [0, 99.0, 0], [0, 0, 99.0]])
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long))
    tried = victim_and_task(lambda x, _: x, data, torch.tensor([0, 1]))
    rows = [torch.tensor([0, 1])] * 5
    found = STARTS["runner_up"](
        *tried, rows, Budget(feature_limits=(-1.0, 1.0)), torch.Generator().manual_seed(0)
    )
    assert torch.equal(found, x[[3] * 5])
