"""Every flag rises where an attack was misled, and stays down where it was not."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import (
    DICE,
    PGD,
    Attack,
    Budget,
    PerturbedGraph,
    PGDModification,
    RandomInjection,
    Task,
    spent_budget,
)
from robust_diffusion.attacks.base import GivenUp
from robust_diffusion.evaluation import flags
from robust_diffusion.evaluation.flag_codes import DECLARED
from robust_diffusion.flows import Dragon, Frond, Grand, Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import MLP, GNNGuard, GraphPDE
from robust_diffusion.models.victim import Victim
from tests.attacks import contract

BUDGET = Budget(max_injected_nodes=5, max_edges_per_injected_node=6, feature_limits=(-1.0, 1.0))


class RandomLogits(nn.Module):
    """A planted fake: a GCN that adds noise to what it says."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits = self.model(x, edge_index)
        return logits + 0.1 * torch.randn_like(logits)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graph() -> Data:
    return contract.graph()


@pytest.fixture(scope="module")
def injected() -> PerturbedGraph:
    return contract.run(RandomInjection(), budget=BUDGET)


def victim(model: Any) -> Victim:
    return Victim(model, contract.graph().x, contract.graph().edge_index)


def result_of(
    task: Task,
    attack: Attack,
    perturbed: PerturbedGraph,
    model: Any = None,
    budget: Budget = BUDGET,
) -> flags.AttackResult:
    """An attack's result on a model, by default the GCN."""
    attacked = victim(contract.trained() if model is None else model)
    return flags.AttackResult(
        name=attack.name,
        row=attack.name,
        attack=attack,
        budget=budget,
        victim=attacked,
        graph=perturbed,
        labels=task.labels,
        before=attacked.predict(task.graph)[task.targets],
        after=attacked.predict(perturbed)[task.targets],
        spent=spent_budget(task.graph, perturbed),
        effort={},
    )


def codes(found: Iterable[flags.Flag]) -> list[str]:
    return [flag.code for flag in found]


def test_is_blind_models(task: Task, graph: Data, injected: PerturbedGraph) -> None:
    sizes, classes = (graph.num_features, 8), graph.num_classes
    pruned = replace(injected, x=injected.x.clone())
    pruned.x[graph.num_nodes :] = 0  # like nothing, so that every new edge is pruned
    assert flags.is_blind(victim(MLP(*sizes, out_channels=classes).eval()), task, injected)
    assert not flags.is_blind(victim(contract.trained()), task, injected)
    guard = GNNGuard(*sizes, out_channels=classes, threshold=0.5).eval()
    assert not flags.is_blind(victim(guard), task, pruned)


@pytest.mark.parametrize(
    ("fake", "isolated", "expected"),
    [
        (lambda model: model, 0, []),
        (lambda model: model, 6, []),  # nodes without an edge have no gradient anyway
        (lambda of: lambda x, edges: of(torch.round(20 * x) / 20, edges), 0, ["zero_gradient"]),
        (lambda of: lambda x, edges: of(x, edges).detach(), 0, ["zero_gradient"]),
        (lambda of: lambda x, edges: of(2 * x.detach() - x, edges), 0, ["misleading_gradient"]),
        (
            lambda of: lambda x, edges: of(x + 1e-3 * torch.sin(1e5 * x), edges),
            *(0, ["misleading_gradient"]),
        ),
        # The square root has no derivative at 0.
        (
            lambda of: lambda x, edges: of(x, edges) + (x - x.detach()).square().sum().sqrt(),
            *(0, ["gradient_not_finite"]),
        ),
    ],
)
def test_gradient_flags_models(
    task: Task, injected: PerturbedGraph, fake: Any, isolated: int, expected: list[str]
) -> None:
    more = replace(injected, x=torch.cat([injected.x, injected.x[-5:], injected.x[-5:]]))
    given = result_of(task, PGD(), more if isolated else injected, fake(contract.trained()))
    assert codes(flags.gradient_flags(given.victim, task, given)) == expected


@pytest.mark.parametrize(
    ("attack", "budget", "raised"),
    [
        (PGDModification(), Budget(node_ratio=0.5), False),
        (PGDModification(), Budget(edge_ratio=0.5), False),
        (PGDModification(), Budget(), True),
        (DICE(), Budget(edge_ratio=0.5), False),
        (DICE(), Budget(node_ratio=0.5), True),
    ],
)
def test_budget_allows_nothing_limits(
    task: Task, graph: Data, attack: Attack, budget: Budget, *, raised: bool
) -> None:
    unchanged = PerturbedGraph(graph.x, graph.edge_index, graph.num_nodes)
    given = result_of(task, attack, unchanged, budget=budget)
    found = flags.budget_allows_nothing(given.victim, task, given)
    assert codes(found) == ["budget_allows_nothing"] * raised


@pytest.mark.parametrize(
    ("reads_edges", "variable", "raised"),
    [(True, "edge weights", True), (False, "edge weights", False), (False, "features", True)],
)
def test_parts_given_up_variables(
    task: Task, graph: Data, *, reads_edges: bool, variable: str, raised: bool
) -> None:
    given_up = {"part": GivenUp("a sentence of edge weights", variable)}
    unchanged = PerturbedGraph(graph.x, graph.edge_index, graph.num_nodes, given_up=given_up)
    mlp = MLP(graph.num_features, 8, out_channels=graph.num_classes).eval()
    given = result_of(task, DICE(), unchanged, contract.trained() if reads_edges else mlp)
    found = flags.parts_given_up(given.victim, task, given)
    assert codes(found) == ["parts_given_up"] * raised


def part_flags(parts: list[float]) -> Iterable[flags.Flag]:
    return flags.part_flags({str(i): of for i, of in enumerate(parts)}, 0.9)


def still_gaining(*steps: tuple[int, float]) -> Iterable[flags.Flag]:
    """Of an attack of 300 passes, with these new lowest accuracies after so many passes."""
    return flags.still_gaining({"forwards": 300, "trace": [(n, 0.0, share) for n, share in steps]})


def one_class(after: list[int]) -> Iterable[flags.Flag]:
    return flags.one_class(TEN, torch.tensor(after), TEN)


def loss_without_errors(*changed: int) -> Iterable[flags.Flag]:
    """Of four nodes, of which the second one is wrong, some are pushed far into another class."""
    clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    after = clean.clone()
    after[list(changed)] = torch.tensor([0.0, 40.0])
    return flags.loss_without_errors(clean, after, torch.tensor([0, 0, 1, 1]))


TEN = torch.tensor([0] * 10 + [1] * 5 + [2] * 5)


@pytest.mark.parametrize(
    ("function", "raised", "calm"),
    [
        (flags.solvers_disagree, ({"a": 0.5, "b": 0.45},), ({"a": 0.5, "b": 0.495},)),
        *(
            (flags.weaker_than, (0.5, 0.4, of), (0.4, 0.4, of))
            for of in ("weaker_than_chance", "weaker_than_transfer")
        ),
        (loss_without_errors, (1,), (0,)),
        (loss_without_errors, (1,), ()),
        (part_flags, ([0.30, 0.31, 0.36],), ([0.30, 0.40],)),  # not converged
        (part_flags, ([0.30, 0.31, 0.32, 0.92],), ([0.30, 0.31, 0.32, 0.9],)),  # above clean
        # It gains after two thirds of the passes; it does so before, or wins.
        (still_gaining, ((0, 0.8), (200, 0.5), (201, 0.4)), ((0, 0.8), (200, 0.4), (300, 0.385))),
        (still_gaining, ((0, 0.8), (300, 0.1)), ((0, 0.8), (300, 0.0))),
        # All are driven to one class; none is right.
        (one_class, ([0] * 20,), ([1] * 10 + [0] * 10,)),
        # All that are right are of one class; as on the clean graph.
        (one_class, ([0] * 10 + [2] * 5 + [1] * 5,), (TEN.tolist(),)),
        # So few are right that chance puts them into one class.
        (one_class, ([0] * 10 + [2] * 5 + [1] * 5,), ([0] * 9 + [1] + [2] * 5 + [1] * 5,)),
    ],
)
def test_checks_by_figures(function: Any, raised: Any, calm: Any) -> None:
    (flag,) = function(*raised)
    assert "chance" not in flag.detail  # the control is named as what it is
    code = flag.code
    assert code in DECLARED
    assert codes(function(*calm)) == []


def pde(flow: type, t_end: float, graph: Data, solver: Solver | None = None) -> nn.Module:
    torch.manual_seed(0)
    solver = solver or Solver("euler", num_steps=1)
    sizes, classes = (graph.num_features, 8), graph.num_classes
    return GraphPDE(
        *sizes, out_channels=classes, flow=partial(flow, t_end=t_end), solver=solver
    ).eval()


@pytest.fixture(scope="module")
def task(graph: Data) -> Task:
    return Task(graph, graph.index_test, graph.y)


@pytest.mark.parametrize(
    ("flow", "t_end", "solver", "raised"),
    [
        (Heat, 200.0, None, True),  # a step on dZ/dt = (A - I) Z that leaves the stable region
        (Grand, 0.01, None, False),
        (Heat, 10.0, Solver("dopri5"), False),  # four steps of RK4 would be unstable
    ],
)
def test_prediction_flags_solvers(
    task: Task, flow: type, t_end: float, solver: Solver | None, *, raised: bool
) -> None:
    model = victim(pde(flow, t_end, task.graph, solver))
    logits = model.predict(task.graph)[task.targets]
    found = flags.prediction_flags(model, task, task.graph, logits)
    assert codes(found) == ["solvers_disagree"] * raised
    broken = flags.prediction_flags(victim(contract.trained()), task, task.graph, logits / 0)
    assert codes(broken) == ["logits_not_finite"]


@pytest.mark.parametrize(
    ("flow", "solver"),
    [(Heat, "rk4"), *((flow, "fractional predictor") for flow in (Frond, Dragon))],
)
def test_prediction_flags_solver_names(
    task: Task, flow: type, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags, "_POINT", -1.0)  # every difference is flagged
    model = victim(pde(flow, 1.0, task.graph))
    logits = model.predict(task.graph)[task.targets]
    (flag,) = flags.prediction_flags(model, task, task.graph, logits)
    assert f"%, {solver} of 4 times the steps " in flag.detail


def test_budget_unspent_counts(graph: Data, injected: PerturbedGraph) -> None:
    spent = spent_budget(graph, injected)
    for allowed, expected in ((5, []), (6, ["budget_unspent"])):
        budget = replace(BUDGET, max_injected_nodes=allowed)
        assert codes(flags.budget_unspent(budget, spent)) == expected


def test_of_the_row_of_no_accuracy() -> None:
    """If no accuracy is left, no attack was too weak, but the number may be wrong."""
    found = [flags.Flag("no_effect", ""), flags.Flag("stochastic", "")] * 2
    assert codes(flags.of_the_row(found, 0.5)) == ["no_effect", "stochastic"]
    assert codes(flags.of_the_row(found, 0.0)) == ["stochastic"]
