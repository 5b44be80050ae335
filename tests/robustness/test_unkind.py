"""Models, attacks and programs that were not written for this package: right, or refused."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion import (
    DICE,
    GCN,
    MLP,
    PGD,
    Attack,
    AutoInjection,
    AutoModification,
    Budget,
    PerturbedGraph,
    RobustnessReport,
    evaluate,
    fit,
)
from robust_diffusion.errors import AttackError, ConfigError
from tests.attacks.contract import NAMES, make
from tests.drawn import CLASSES, FEATURES, drawn_data
from tests.graphs import without_type_checks
from tests.robustness.test_evaluate_model import MODELS
from tests.robustness.test_flags import RandomLogits

BUDGET = Budget(max_injected_nodes=4, max_edges_per_injected_node=5)
DATA = drawn_data()
ATTACKS = {"pgd": PGD(num_steps=2), "dice": DICE()}


def of(report: RobustnessReport) -> Any:
    """All that a report says, but for times."""
    frame = report.to_frame().drop(columns="seconds")
    return [*frame.to_dict("records"), *[a.graph.x.tolist() for a in report.attacks]]


def run(model: nn.Module, data: Data = DATA, attacks: Any = ATTACKS, **options: Any) -> Any:
    return evaluate(model, data, attacks=attacks, budget=BUDGET, progress=False, **options)


@cache
def gcn() -> nn.Module:
    """Trained for a moment; nobody may change it."""
    torch.manual_seed(0)
    model = GCN(FEATURES, 8, CLASSES, num_layers=2)
    fit(model, DATA, max_epochs=20, accelerator="cpu", progress=False)
    return model


class Around(nn.Module):
    """A model in the hands of somebody else."""

    def __init__(self, model: nn.Module, change: Callable[..., Any] = lambda x, e: (x, e)) -> None:
        super().__init__()
        self.model = model
        self.change = change

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = () if edge_weight is None else (edge_weight,)
        return self.model(*self.change(x, edge_index), *weight)  # type: ignore[no-any-return]


def in_place(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    x += 0.3
    return x.relu_(), edge_index


def on_a_copy(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    return (x + 0.3).relu(), edge_index


class Writing(Attack):
    """Another attack, on whose input it writes."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        self.name = "writing"  # type: ignore[misc]
        for key in ("kind", "needs", "is_worst_case"):
            setattr(self, key, getattr(attack, key))

    def __call__(
        self, model: Any, data: Data, target_nodes: Tensor, budget: Budget, generator: Any
    ) -> PerturbedGraph:
        made = self.attack(model, data.clone(), target_nodes.clone(), budget, generator)
        assert data.x is not None
        data.x[target_nodes] += 5
        target_nodes.zero_()
        model.train()
        return made


class Returning(Attack):
    name, kind = "returning", "injection"

    def __init__(self, make: Callable[[Data], Any]) -> None:
        self.make = make

    def __call__(self, model: Any, data: Data, *_: Any) -> PerturbedGraph:
        return self.make(data)  # type: ignore[no-any-return]


class Raising(Returning):
    """Lifts the features of the targets in place."""

    def __call__(self, model: Any, data: Data, target_nodes: Tensor, *_: Any) -> PerturbedGraph:
        assert data.x is not None
        data.x[target_nodes] += 5
        return PerturbedGraph(data.x, data.edge_index, len(data.x))


@pytest.mark.parametrize("build", MODELS)
def test_a_model_that_writes_in_place_is_evaluated_as_on_a_copy(build: Any) -> None:
    data = drawn_data()
    reports = []
    for change in (in_place, on_a_copy):
        torch.manual_seed(0)
        reports.append(of(run(Around(build(), change), data, PGD(num_steps=1))))
    assert reports[0] == reports[1]
    assert torch.equal(data.x, DATA.x)


def test_a_model_that_writes_in_place_is_trained_as_on_a_copy() -> None:
    data, trained = drawn_data(), []
    for change in (in_place, on_a_copy):
        torch.manual_seed(0)
        model = Around(GCN(FEATURES, 8, CLASSES), change)
        trained.append(fit(model, data, max_epochs=3, accelerator="cpu", progress=False))
    assert trained[0].val_accuracy == trained[1].val_accuracy
    assert torch.equal(data.x, DATA.x)


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_that_writes_in_place_harms_itself_alone(name: str) -> None:
    data, model, attack = drawn_data(), gcn(), make(name)
    attacks = [{"a": of, "b": PGD(num_steps=1)} for of in (Writing(attack), attack)]
    written, plain = (run(model, data, of) for of in attacks)
    assert torch.equal(data.x, DATA.x)
    assert written.clean_accuracy == plain.clean_accuracy
    for key in "ab":
        assert written[key].accuracy == plain[key].accuracy
        assert written[key].spent == plain[key].spent


def test_what_an_attack_writes_in_place_is_counted() -> None:
    report = run(gcn(), attacks=Raising(lambda data: data))
    assert report.worst.spent.changed_nodes == report.num_targets
    assert "budget_overspent" in {flag.code for flag in report["returning"].flags}


def test_an_attack_may_not_change_the_weights() -> None:
    class Training(Raising):
        def __call__(self, model: Any, data: Data, *_: Any) -> PerturbedGraph:
            next(model.parameters()).data.add_(1)
            return PerturbedGraph(data.x, data.edge_index, len(data.x))

    with pytest.raises(AttackError, match=r"Training: .*weights"):
        run(gcn(), attacks=Training(lambda data: data))


@pytest.mark.parametrize(
    "make",
    [
        lambda data: None,
        lambda data: (data.x, data.edge_index),
        lambda data: PerturbedGraph(data.x, data.edge_index.float(), len(data.x)),
        lambda data: PerturbedGraph(data.x, data.edge_index[0], len(data.x)),
        lambda data: PerturbedGraph(data.x.double(), data.edge_index, len(data.x)),
        lambda data: PerturbedGraph(data.x, data.edge_index, len(data.x) - 1),
        lambda data: PerturbedGraph(data.x[:, 1:], data.edge_index, len(data.x)),
        lambda data: PerturbedGraph(data.x, data.edge_index + 1, len(data.x)),
        lambda data: PerturbedGraph(data.x, data.edge_index - 1, len(data.x)),
    ],
)
def test_what_is_no_attacked_graph_is_refused_in_one_line(make: Callable[[Data], Any]) -> None:
    with without_type_checks(), pytest.raises(AttackError, match=r"^Returning: returns [^\n]*$"):
        run(gcn(), attacks=Returning(make))


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, float64], ids=lambda of: of.__name__
)
@pytest.mark.parametrize("name", NAMES)
def test_the_callers_context_changes_no_number(
    name: str, context: Callable[[], AbstractContextManager[Any]]
) -> None:
    model, attack = gcn(), make(name)
    plain = of(run(model, attacks=attack))
    with context():
        assert of(run(model, attacks=attack)) == plain


def test_threads_change_no_number() -> None:
    model = RandomLogits(GCN(FEATURES, 8, CLASSES)).train()
    attacks = {"pgd": PGD(num_steps=2)}
    plain = of(run(model, attacks=attacks))
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(run, model, attacks=attacks) for _ in range(4)]
    assert all(of(future.result()) == plain for future in futures)
    assert model.training


class OwnGraph(Around):
    """Its edges are those of the constructor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, lambda x, _: (x, DATA.edge_index))


def test_blindness_to_edges_is_refused_but_of_an_mlp_noted() -> None:
    with pytest.raises(ConfigError, match=r"^model: OwnGraph .*edge_index"):
        run(OwnGraph(gcn()))
    attacks = [PGD(num_steps=1), DICE(), AutoInjection(num_steps=1), AutoModification(num_steps=1)]
    report = run(Around(MLP(FEATURES, 8, CLASSES)), attacks=attacks)
    assert len(report.notes) == 1
    assert all(of.is_bound or of.is_control for of in report.attacks)
    assert not run(gcn()).notes


def test_probabilities_are_attacked_through_their_logarithm_and_flagged() -> None:
    class Sure(Around):
        def forward(self, *args: Tensor) -> Tensor:
            return (20 * self.model(*args)).softmax(-1)

    model = gcn()
    logits, probabilities = (run(of, attacks=PGD(num_steps=20)) for of in (model, Sure(model)))
    assert probabilities.clean_accuracy == logits.clean_accuracy
    assert probabilities["pgd"].accuracy <= logits["pgd"].accuracy + 0.05
    for row in probabilities.attacks:
        assert "probabilities" in {flag.code for flag in row.flags}
        assert not row.is_bound
    assert torch.allclose(Sure(model)(DATA.x, DATA.edge_index).sum(1), torch.ones(len(DATA.x)))


def test_flags_of_the_model_reach_each_row() -> None:
    report = run(RandomLogits(gcn()), attacks=DICE())
    for row in report.attacks:
        assert "stochastic" in {flag.code for flag in row.flags}
    assert not report.worst.is_bound


class Unweighted(nn.Module):
    """Takes no edge weights, and has no layers whose messages could be masked."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.hidden = (model.eval(),)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.hidden[0](x, edge_index)  # type: ignore[no-any-return]


@pytest.mark.parametrize("weighted", [True, False])
def test_edges_without_a_gradient_are_a_flag(weighted: bool) -> None:
    model = gcn() if weighted else Unweighted(gcn())
    row = run(model, attacks=AutoInjection(num_steps=0))["auto"]
    assert row.accuracy > 0
    assert ("no_edge_gradient" in {flag.code for flag in row.flags}) != weighted


@pytest.mark.parametrize("weighted", [True, False])
def test_parts_that_are_given_up_are_a_flag(weighted: bool) -> None:
    model = gcn() if weighted else Unweighted(gcn())
    row = run(model, attacks=AutoModification(num_steps=1))["auto_modification"]
    told = {flag.code: flag.detail for flag in row.flags}
    assert ("parts_given_up" in told) != weighted
    assert weighted or told["parts_given_up"].startswith("4 of ")
    assert weighted or row.accuracy == 0 or not row.is_bound


def test_a_budget_that_allows_nothing_is_named() -> None:
    data = drawn_data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
    data.y = gcn()(data.x, data.edge_index).argmax(1)
    flags = partial(evaluate, gcn(), data, attacks=DICE(), nodes=[0], progress=False)
    (few,) = flags(budget=Budget(0, 0, edge_ratio=0.2))["dice"].flags
    assert few.code == "budget_allows_nothing"
    assert "budget.edge_ratio=0.2" in few.detail
    assert flags(budget=Budget(0, 0, edge_ratio=0, node_ratio=0))["dice"].flags == ()
