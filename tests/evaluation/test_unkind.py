"""Models, attacks and programs that were not written for this package: right, or refused."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion import Attack, Budget, RobustnessReport, evaluate, fit
from robust_diffusion.attacks import (
    DICE,
    GRBCD,
    PGD,
    PRBCD,
    AutoInjection,
    AutoModification,
    GradientInjection,
    PerturbedGraph,
    PGDModification,
    Task,
)
from robust_diffusion.attacks.injection.adversary import InjectionAdversary
from robust_diffusion.attacks.injection.base import InjectionAttack
from robust_diffusion.attacks.modification.base import ModificationAttack
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models import GCN, MLP
from robust_diffusion.models.victim import Victim, sorted_row
from robust_diffusion.system.tensor_hashes import state_hash
from tests.attacks.contract import make
from tests.drawn import CLASSES, FEATURES, drawn_data
from tests.evaluation.test_evaluate_model import MODELS, trained
from tests.evaluation.test_flags import RandomLogits
from tests.graphs import without_type_checks

BUDGET = Budget(4, 5, node_ratio=0.2, edge_ratio=0.2)
DATA = drawn_data()


def of(report: RobustnessReport) -> Any:
    """All that a report says, but for times."""
    frame = report.to_frame().drop(columns="seconds")
    return [*frame.to_dict("records"), *[a.graph.x.tolist() for a in report.attacks]]


def run(model: nn.Module, attacks: Any, data: Data = DATA) -> Any:
    return evaluate(model, data, attacks=attacks, budget=BUDGET, progress=False)


def codes(row: Any) -> set[str]:
    return {flag.code for flag in row.flags}


@cache
def gcn() -> nn.Module:
    """Trained for a moment; nobody may change it."""
    torch.manual_seed(0)
    model = GCN(FEATURES, 8, out_channels=CLASSES, num_layers=2)
    fit(model, DATA, max_epochs=20, accelerator="cpu", progress=False)
    return model


class Around(nn.Module):
    """A model in the hands of somebody else."""

    def __init__(self, model: nn.Module, change: Any = None, end: Any = None) -> None:
        super().__init__()
        self.model, self.change, self.end = model, change, end

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = () if edge_weight is None else (edge_weight,)
        given = self.change(x, edge_index) if self.change else (x, edge_index)
        logits = self.model(*given, *weight)
        return self.end(logits) if self.end else logits


@pytest.mark.parametrize("build", MODELS[::5])
def test_evaluate_model_that_writes_in_place(build: Any) -> None:
    data, reports = drawn_data(), []
    in_place, on_a_copy = (lambda x: x.add_(0.3).relu_()), (lambda x: (x + 0.3).relu())
    for change in (in_place, on_a_copy):
        torch.manual_seed(0)
        model = Around(build(), lambda x, edges, change=change: (change(x), edges))
        reports.append(of(run(model, PGD(num_steps=1), data)))
    assert reports[0] == reports[1]
    assert torch.equal(data.x, DATA.x)


@pytest.mark.parametrize("adversary", [None, InjectionAdversary(num_steps=1)])
@pytest.mark.parametrize("edges", [True, False])
def test_fit_model_that_writes_in_place(adversary: Any, *, edges: bool) -> None:
    def in_place(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return (x, edge_index.fill_(0)) if edges else (x.add_(0.3).relu_(), edge_index)

    data, weights = drawn_data(), []
    for change in (in_place, lambda *given: in_place(*(a.clone() for a in given))):
        torch.manual_seed(0)
        model = Around(GCN(FEATURES, 8, out_channels=CLASSES, num_layers=2), change)
        fit(model, data, max_epochs=3, accelerator="cpu", progress=False, adversary=adversary)
        weights.append(state_hash(model.state_dict()))
    assert weights[0] == weights[1]
    assert torch.equal(data.x, DATA.x)
    assert torch.equal(data.edge_index, DATA.edge_index)


class Writing(PGD):
    """Writes on its input."""

    def __call__(self, victim: Victim, task: Task, *rest: Any) -> PerturbedGraph:
        own = replace(task, graph=task.graph.clone(), targets=task.targets.clone())
        made = super().__call__(victim, own, *rest)
        task.x[task.targets] += 5
        task.targets.zero_()
        victim.module.train()
        return made


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("metattack", torch.inference_mode),
        ("metagia", torch.no_grad),
        ("prbcd", torch.inference_mode),
    ],
)
def test_evaluate_attack_that_writes_in_place(name: str, context: Any) -> None:
    data, other = drawn_data(), make(name)
    plain = run(gcn(), {"a": PGD(num_steps=1), "b": other}, data)
    with context():
        torch.set_default_dtype(torch.float64)
        try:
            written = run(gcn(), {"a": Writing(num_steps=1), "b": other}, data)
        finally:
            torch.set_default_dtype(torch.float32)
    assert torch.equal(data.x, DATA.x)
    assert of(written) == of(plain)


class Returning(Attack):
    name, kind = "returning", "injection"

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __call__(self, victim: Victim, task: Task, *_: Any) -> PerturbedGraph:
        return self.make(victim.model, task.x, task.edge_index, task.targets)  # type: ignore[no-any-return]


def trains_it(model: Any, x: Tensor, edges: Tensor, _: Tensor) -> PerturbedGraph:
    next(model.parameters()).data.add_(1)
    return PerturbedGraph(x, edges, len(x))


def returning(base: type[Attack], returned: Any) -> Attack:
    method = {Attack: "perturb", InjectionAttack: "inject", ModificationAttack: "modify"}[base]
    methods: Any = {method: lambda *_: returned}
    return type("Returning", (base,), {"name": "mine", "kind": "injection", **methods})()


PAIR = "attack=mine: returns [^\n]+; it must return a pair of tensors, features and edges"


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        *(
            (Returning(make), "Returning: ")
            for make in (
                lambda *_: None,
                lambda m, x, e, t: PerturbedGraph(x, e.float(), len(x)),
                lambda m, x, e, t: PerturbedGraph(x, e[0], len(x)),
                lambda m, x, e, t: PerturbedGraph(x.double(), e, len(x)),
                lambda m, x, e, t: PerturbedGraph(x, e, len(x) - 1),
                lambda m, x, e, t: PerturbedGraph(x[:, 1:], e, len(x)),
                lambda m, x, e, t: PerturbedGraph(x.index_fill(0, t[:1], torch.nan), e, len(x)),
                lambda m, x, e, t: PerturbedGraph(x, e + 1, len(x)),
                trains_it,
            )
        ),
        (returning(Attack, None), PAIR),
        (returning(InjectionAttack, DATA.x), PAIR),
        (returning(ModificationAttack, (DATA.x, None)), PAIR),
        (returning(Attack, (DATA.x, DATA.edge_index, 1)), PAIR),
    ],
)
def test_evaluate_bad_attacked_graphs(attack: Attack, problem: str) -> None:
    with without_type_checks(), pytest.raises(AttackError, match=rf"^{problem}[^\n]*$"):
        run(gcn(), attack)


def test_evaluate_counts_writes_of_an_attack() -> None:
    def raised(_: Any, x: Tensor, edges: Tensor, targets: Tensor) -> PerturbedGraph:
        x[targets] += 5
        return PerturbedGraph(x, edges, len(x))

    report = run(gcn(), Returning(raised))
    assert report.worst.spent.changed_nodes == report.num_targets
    assert "budget_overspent" in codes(report["returning"])


def test_evaluate_threads() -> None:
    model = RandomLogits(GCN(FEATURES, 8, out_channels=CLASSES)).train()
    plain = of(run(model, PGD(num_steps=2)))
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(run, model, PGD(num_steps=2)) for _ in range(4)]
    assert all(of(future.result()) == plain for future in futures)
    assert model.training


def test_evaluate_models_without_edges() -> None:
    with pytest.raises(ConfigError, match=r"^model: .*edge_index"):
        run(Around(gcn(), lambda x, _: (x, DATA.edge_index)), DICE())
    attacks = [PGD(num_steps=1), DICE(), AutoInjection(num_steps=1), AutoModification(num_steps=1)]
    torch.manual_seed(1)  # an MLP of one class under changed features would be flagged
    mlp = Around(MLP(FEATURES, 8, out_channels=CLASSES))
    report = run(mlp, attacks)
    assert len(report.notes) == 1
    assert all(of.is_bound or of.is_control for of in report.attacks)
    flips = Budget(edge_ratio=0.2)  # alone
    assert evaluate(mlp, DATA, attacks=attacks[-1], budget=flips, progress=False).worst.is_bound
    assert not run(gcn(), DICE()).notes


def test_evaluate_filter_of_clean_edges() -> None:
    def small(_: Any, x: Tensor, edges: Tensor, targets: Tensor) -> PerturbedGraph:
        new = torch.stack([targets[:5], torch.full_like(targets[:5], len(x))])
        x, n = torch.cat([x, x.new_zeros(1, FEATURES)]), len(x)
        return PerturbedGraph(x, torch.cat([edges, new, new.flip(0)], 1), n)

    def filtered(x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:  # as features of clean nodes
        return x, edges[:, (x.abs().amax(1) > DATA.x.abs().max())[edges].any(0)]

    given = {"budget": Budget(10, 10, feature_limits=(-90.0, 90.0)), "progress": False}
    report = evaluate(Around(gcn(), filtered), DATA, attacks={"small": Returning(small)}, **given)
    assert report["random"].accuracy < report["small"].accuracy == report.clean_accuracy
    assert "weaker_than_chance" in codes(report["small"])
    assert not report.notes


class Summing(nn.Module):
    """Sums neighbours, by sorted edges or by any."""

    def __init__(self, row: int, is_sorted: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(FEATURES, CLASSES, dtype=torch.double)
        self.row, self.is_sorted = row, is_sorted

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h, own, other = self.linear(x), edge_index[self.row], edge_index[1 - self.row]
        messages = h[other] if edge_weight is None else h[other] * edge_weight[:, None]
        if not self.is_sorted:
            return h.index_add(0, own, messages)  # type: ignore[no-any-return]
        ends = torch._convert_indices_from_coo_to_csr(own, len(x)).long()
        until = torch.cat([messages.new_zeros(1, CLASSES), messages.cumsum(0)])[ends]
        return h + until[1:] - until[:-1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("row", [0, 1])
def test_evaluate_sorted_edges(row: int) -> None:
    edges = DATA.edge_index.flip(0) if row else DATA.edge_index
    y = Summing(row, is_sorted=True)(DATA.x.double(), edges).argmax(1)
    attacks = [PGD(num_steps=2), DICE(), GRBCD(num_steps=3, block_size=500)]
    data = drawn_data(edge_index=edges, y=y)
    by_sorted, by_any = (run(Summing(row, is_sorted), attacks, data) for is_sorted in (True, False))
    assert by_any.robust_accuracy < by_any.clean_accuracy == 1
    for one, other in zip(by_sorted.attacks, by_any.attacks, strict=True):
        assert one.accuracy == other.accuracy
        assert torch.equal(one.graph.edge_index, other.graph.edge_index)
        assert sorted_row(one.graph.edge_index) == row


def rounding() -> nn.Module:
    """A model with a gradient of 0."""
    return Around(copy.deepcopy(gcn()), lambda x, edges: ((20 * x).round() / 20, edges))


def collapsing() -> nn.Module:
    """A model that says one class when nodes are new."""
    one = F.one_hot(DATA.y[DATA.test_mask][0], CLASSES)
    return Around(gcn(), end=lambda logits: logits + 100.0 * (len(logits) > len(DATA.x)) * one)


@pytest.mark.parametrize(
    ("tested", "surrogate", "raised"),
    [
        (lambda: MLP(FEATURES, 8, out_channels=CLASSES), rounding, set()),
        (collapsing, lambda: GCN(FEATURES, 8, out_channels=CLASSES), {"one_class"}),
    ],
)
def test_evaluate_flags_of_surrogates(tested: Any, surrogate: Any, raised: set[str]) -> None:
    torch.manual_seed(1)
    given = {"attacks": PGD(num_steps=2), "surrogates": {"other": surrogate()}, "budget": BUDGET}
    report = evaluate(tested(), DATA, **given, threat="black_box", progress=False)
    assert codes(report["pgd/other"]) - {"weaker_than_chance"} == raised


def test_evaluate_probabilities() -> None:
    sure = Around(gcn(), end=lambda logits: (20 * logits).softmax(-1))
    logits, probabilities = (run(of, PGD(num_steps=20)) for of in (gcn(), sure))
    assert probabilities.clean_accuracy == logits.clean_accuracy
    assert probabilities["pgd"].accuracy <= logits["pgd"].accuracy + 0.05
    assert all("probabilities" in codes(row) for row in probabilities.attacks)
    assert not any("probabilities" in codes(row) for row in logits.attacks)
    assert not any(row.is_bound for row in probabilities.attacks)


class Unweighted(nn.Module):
    """Takes no edge weights, and has no layers whose messages could be masked."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return gcn().eval()(x, edge_index)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("attack", "fake", "code"),
    [
        (GRBCD(num_steps=1, block_size=500), lambda _: trained("GAT", 0), "rough_edge_gradient"),
        (
            GradientInjection(num_steps=1, edges="gradient"),
            lambda _: trained("GAT", 0),
            "rough_edge_gradient",
        ),
        (AutoInjection(num_steps=0), lambda _: Unweighted(), "no_edge_gradient"),
        (AutoModification(num_steps=1), lambda _: Unweighted(), "parts_given_up"),
        (DICE(), RandomLogits, "stochastic"),
    ],
)
@pytest.mark.parametrize("raised", [True, False])
def test_evaluate_flags_of_models(attack: Attack, fake: Any, code: str, raised: bool) -> None:
    report = run(fake(gcn()) if raised else gcn(), attack)
    row = next(row for row in report.attacks if not row.is_control)
    assert (code in codes(row)) == raised
    assert not raised or row.accuracy == 0 or not row.is_bound


def test_evaluate_covers_without_edge_gradient() -> None:
    """They alone are tried if the budget has fewer edges than a fifth of the targets."""
    flags = partial(evaluate, Unweighted(), DATA, attacks=AutoInjection(num_steps=0))
    rows = [flags(budget=budget, progress=False)["auto"] for budget in (Budget(1, 1), Budget(4, 5))]
    assert ["no_edge_gradient" in codes(row) for row in rows] == [False, True]


def test_evaluate_budget_of_features() -> None:
    report = evaluate(gcn(), DATA, Budget(node_ratio=0.5), PGDModification(num_steps=1))
    assert report["pgd_modification"].spent.changed_nodes > 0


class Plain(nn.Module):
    """Of features and edges alone."""

    def __init__(self, model: nn.Module, change: Any = None) -> None:
        super().__init__()
        self.model, self.change = model, change or (lambda x: x)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.model(self.change(x), edge_index)


class OptionallyHidden(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, return_hidden: bool = False) -> Any:
        logits = self.model(x, edge_index)
        return (logits, x) if return_hidden else logits


class OfBatches(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Any:
        logits = self.model(x, edge_index)
        return logits if batch is None else logits.mean(0) * batch[: len(x), None]


def with_attributes(model: nn.Module) -> nn.Module:
    """Return a model that keeps logits with a gradient, and what cannot be copied."""
    plain = Plain(model)
    plain.kept, plain.lock = {"last": plain(DATA.x, DATA.edge_index)}, threading.Lock()
    return plain


class WithExtraState(Plain):
    def get_extra_state(self) -> Any:
        return {"version": 1, "names": ("a", "b")}

    def set_extra_state(self, state: Any) -> None:
        pass


class TrainingItsNorm(Plain):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.norm = nn.BatchNorm1d(FEATURES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.norm.train()
        return self.model(self.norm(x), edge_index)


FOREIGN = [
    *[(name, lambda model: model, Plain) for name in ("GAT", "GIN")],
    *[
        ("GCN", cls, Plain)
        for cls in (OptionallyHidden, OfBatches, with_attributes, WithExtraState)
    ],
    ("GCN", partial(Plain, change=torch.jit.script(F.relu)), partial(Plain, change=F.relu)),
    (
        "GCN",
        TrainingItsNorm,
        partial(Plain, change=lambda x: F.batch_norm(x, None, None, training=True)),
    ),
]
"""Layers, a model made of them, and one without its trait that computes the same."""


def state_of(model: nn.Module) -> dict[str, Any]:
    state = model.state_dict()
    return {k: v.tolist() if isinstance(v, Tensor) else v for k, v in state.items()}


@pytest.mark.parametrize(("layers", "build", "without"), FOREIGN)
def test_evaluate_custom_models(
    layers: str, build: Callable[[nn.Module], nn.Module], without: Callable[[nn.Module], nn.Module]
) -> None:
    model = build(trained(layers, 0))
    before = state_of(model), [part.training for part in model.modules()], {**vars(model)}
    attacks = [PRBCD(num_steps=1), PGD(num_steps=1)]
    given = {"attacks": attacks, "budget": BUDGET, "threat": "adaptive", "progress": False}
    found, expected = (
        evaluate(each, DATA, **given) for each in (model, without(trained(layers, 0)))
    )
    assert found.clean_accuracy == expected.clean_accuracy
    for mine, plain in zip(found.attacks, expected.attacks, strict=True):
        assert (mine.name, mine.accuracy) == (plain.name, plain.accuracy)
        assert torch.equal(mine.graph.edge_index, plain.graph.edge_index)
        assert torch.equal(mine.graph.x, plain.graph.x)
    after = state_of(model), [part.training for part in model.modules()], {**vars(model)}
    assert before == after


@pytest.mark.parametrize("repeated", ["loops", "edges"])
@pytest.mark.parametrize(("layers", "refused"), [("GraphSAGE", True), ("GAT", False)])
def test_evaluate_model_of_dropped_edges(layers: str, refused: bool, repeated: str) -> None:
    loops = torch.arange(DATA.num_nodes).expand(2, -1)
    more = loops if repeated == "loops" else DATA.edge_index[:, :20]
    data = drawn_data(edge_index=torch.cat([DATA.edge_index, more], 1))
    if refused or repeated == "edges":
        with pytest.raises(ConfigError, match=r"^data.edge_index: [^\n]*self-loops"):
            run(trained(layers, 0), DICE(), data)
    else:
        assert run(trained(layers, 0), DICE(), data).clean_accuracy > 0
