"""Checks of an attack, and flags: reasons not to read an accuracy as a bound.

An attack may fail because the model is robust, or because the attack was misled. `flag_codes.Code`
lists all flags. A check is a function that yields flags; `ATTACK_CHECKS` lists the checks of one
attack, each with a condition for when it applies.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from robust_diffusion.attacks import (
    Attack,
    Budget,
    PerturbedGraph,
    RandomFlip,
    RandomInjection,
    SpentBudget,
    seeded,
    spent_budget,
)
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import Classifier, Problem, frozen
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.errors import AttackError, ConfigError, TrainingError
from robust_diffusion.evaluation.flag_codes import OF_THE_NUMBER, Code
from robust_diffusion.models.adaptive import adaptive_form, with_solver
from robust_diffusion.models.checked import TRIAL_SEED, sees_edges, sorted_by
from robust_diffusion.system.tensor_hashes import tensor_hash

_T = TypeVar("_T")

Outdone = Literal["weaker_than_chance", "weaker_than_transfer"]

_POINT = 0.01
"""Smallest difference in accuracy, in 0..1, that counts as a difference."""

FINER = ("rk4", 4)
"""Second solver for testing a PDE of fixed steps, and its number of steps per original step."""

ONE_CLASS = 0.9
"""Share of one class, not reached on the clean graph, above which an attack counts as stopped
short."""

ENOUGH_RIGHT = 10
"""Fewest correct predictions whose classes are checked; fewer may be of one class at random."""

PARTS_APART = 0.05
"""Largest difference in accuracy, in 0..1, of the three best parts of a converged ensemble."""

LATE_GAIN = 0.02
"""Fall of the accuracy, in 0..1, in the last third of the passes of an attack that needed more."""

HIDDEN = 0.5
"""Share of injected nodes without a gradient above which a gradient attack counts as misled."""

RISE = 1.0
"""Rise of the mean cross-entropy, in nats, that should have cost some accuracy."""


def accuracy(predicted: Any, labels: Any) -> float:
    """Compute the share of correctly classified nodes, in 0..1, of tensors or arrays."""
    return int((predicted == labels).sum()) / max(len(labels), 1)


def graph_hash(graph: Data, targets: Int[Tensor, " t"]) -> str:
    """Return a hash of features, edges in any order, classes and target nodes."""
    (edges,) = sorted_by(0, graph["edge_index"])
    return tensor_hash(graph["x"], edges, graph["y"], targets)


def writes_into_inputs(model: object) -> ConfigError:
    """Return the error of a model that would change the graph it is tested on."""
    return ConfigError(
        f"model: {type(model).__name__} writes into the features or edges that it is passed; let "
        "its forward work on a copy"
    )


@dataclass(frozen=True, eq=False)
class Task:
    """A clean graph, and the target nodes at which models are tested on it and attacked forms."""

    graph: Data  # checked, on the CPU, with known true classes of the targets
    targets: Int[Tensor, " t"]  # nodes under attack
    device: torch.device  # where models run
    _: KW_ONLY
    seed: int = 0  # for models that sample, and for attacks
    poisons: bool = False  # whether models are trained on the attacked graph
    _known: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)
    _logits: Any = field(init=False, repr=False, default_factory=WeakIdKeyDictionary)

    @property
    def reach(self) -> Int[Tensor, " r"]:
        """Nodes at which a modification may change the graph: the targets, or all if poisoning."""
        return torch.arange(self.graph.num_nodes) if self.poisons else self.targets

    def once(self, name: Hashable, model: nn.Module, measure: Callable[[], _T]) -> _T:
        """Return a cached measurement of a model with fixed weights, made at the first call."""
        key = name, id(model)
        if key not in self._known:
            self._known[key] = model, measure()  # keeps the model alive, so its id stays unique
        measured: _T = self._known[key][1]
        return measured

    def logits_of(self, model: nn.Module, graph: Data | PerturbedGraph) -> Float[Tensor, "t c"]:
        """Return the logits of the targets, on the CPU."""
        return self.all_logits(model, graph)[self.targets]

    def all_logits(self, model: nn.Module, graph: Data | PerturbedGraph) -> Float[Tensor, "m c"]:
        """Return the logits of all nodes, on the CPU, cached as long as the graph exists."""
        by_model = self._logits.setdefault(graph, {})
        if id(model) not in by_model:
            inputs = self.placed(graph)
            versions = [tensor._version for tensor in inputs]
            with torch.no_grad(), seeded(self.seed):  # a model may sample
                computed: Tensor = model(*inputs)
            if versions != [tensor._version for tensor in inputs]:
                raise writes_into_inputs(model)
            by_model[id(model)] = model, computed.cpu()
        logits: Tensor = by_model[id(model)][1]
        return logits

    def placed(
        self, graph: Data | PerturbedGraph
    ) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
        """Return the features and edges of a graph, on the device of the models."""
        assert graph.x is not None
        assert graph.edge_index is not None
        return graph.x.to(self.device), graph.edge_index.to(self.device)

    def told(self, model: nn.Module, *, knows_labels: bool) -> dict[str, Tensor]:
        """Return the part of the graph that the attacker of a model knows.

        This is features, edges, and the classes if `knows_labels`. A poisoning attacker always
        knows the classes of the train nodes, and uses the model's predictions elsewhere.
        """
        x, edge_index, y = (self.graph[key] for key in ("x", "edge_index", "y"))
        tensors: dict[str, Tensor] = {"x": x, "edge_index": edge_index}
        if not self.poisons:
            return tensors | ({"y": y} if knows_labels else {})
        train, predicted = self.graph["index_train"], self.all_logits(model, self.graph).argmax(1)
        known = torch.isin(self.reach, train) | (knows_labels & (y >= 0))
        return tensors | {"y": torch.where(known, y, predicted), "index_train": train}

    def accuracy(self, logits: Float[Tensor, "t c"]) -> float:
        """Return the share of correctly classified targets, in 0..1."""
        return accuracy(logits.argmax(1), self.labels)

    @property
    def labels(self) -> Int[Tensor, " t"]:
        """True classes of the targets."""
        assert isinstance(self.graph.y, Tensor)
        return self.graph.y[self.targets]


@dataclass(frozen=True)
class Flag:
    """One reason not to read an accuracy under attack as a bound."""

    code: Code  # for programs
    detail: str  # for readers: one line with the figures

    def __str__(self) -> str:
        """Return the line for readers."""
        return self.detail


def of_the_row(flags: Iterable[Flag], accuracy: float) -> list[Flag]:
    """Return the flags that apply to a row of a table, without duplicates."""
    return [flag for flag in dict.fromkeys(flags) if accuracy > 0 or flag.code in OF_THE_NUMBER]


def stochastic(model: nn.Module, task: Task) -> Iterator[Flag]:
    """Yield a flag if forward passes of a model in eval mode differ on one graph."""
    other = replace(task, seed=TRIAL_SEED)
    again = task.once("another pass", model, lambda: other.all_logits(model, task.graph))
    same = torch.equal(again.nan_to_num(), task.all_logits(model, task.graph).nan_to_num())
    if same and task.seed != TRIAL_SEED:
        return
    with torch.no_grad(), seeded(0):
        first, second = (model(*task.placed(task.graph)) for _ in range(2))
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        changed = 100 * float((first.argmax(1) != second.argmax(1)).float().mean())
        yield Flag("stochastic", f"two forward passes differ in {changed:.1f} % of the classes")


def prediction_flags(
    model: nn.Module, task: Task, graph: Data | PerturbedGraph, logits: Float[Tensor, "t c"]
) -> Iterator[Flag]:
    """Yield flags if predictions of the tested model are not finite or depend on the solver."""
    if broken := int((~logits.isfinite()).any(1).sum()):
        where = f"{broken} of {len(logits)} target nodes"
        yield Flag("logits_not_finite", f"the victim's logits are not finite at {where}")
    if parts := [part for part in model.modules() if hasattr(part, "solver")]:
        finer = task.once("finer", model, lambda: with_solver(model, FINER[0], refine=FINER[1]))
        name = f"{FINER[0]} of {FINER[1]} times the steps"
        if any(getattr(part.solver, "rtol", None) for part in parts):
            name = "at a hundredth of its tolerances"
        elif any(getattr(getattr(part, "flow", None), "order", 1) != 1 for part in parts):
            # A fractional flow takes the solver's steps, but never its method.
            name = f"fractional predictor of {FINER[1]} times the steps"
        with suppress(TrainingError):  # the finer solver may exceed the limit on its steps
            by_finer = task.accuracy(task.logits_of(finer or model, graph))
            yield from solvers_disagree({"own solver": task.accuracy(logits), name: by_finer})


def solvers_disagree(accuracies: Mapping[str, float]) -> Iterator[Flag]:
    """Yield a flag if an accuracy depends on the solver by which the same network is tested."""
    (solver, accuracy), *others = accuracies.items()
    name, other = max(others, key=lambda item: abs(item[1] - accuracy), default=(solver, accuracy))
    if abs(other - accuracy) > _POINT:
        text = f"{solver} gives {100 * accuracy:.2f} %, {name} {100 * other:.2f} %"
        yield Flag("solvers_disagree", f"test solvers disagree: {text}")


def weaker_than(accuracy: float, other: float, code: Outdone) -> Iterator[Flag]:
    """Yield a flag if a weaker attacker does more harm to the same model; accuracies in 0..1."""
    # A random attack is a single draw, and a transferred attack has only seen another model. If
    # either reaches a lower accuracy, this attack has missed an attack that exists.
    if accuracy > other:
        name = code.removeprefix("weaker_than_")
        text = f"{100 * accuracy:.2f} % against {100 * other:.2f} %"
        yield Flag(code, f"weaker than {name}: {text}")


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on one model: its graph, and its cost when it was computed."""

    task: Task
    model: nn.Module  # as the attacker sees it, in eval mode, on the task's device
    attack: Attack
    budget: Budget  # limits of the attack
    chance: Callable[[], float] | None  # accuracy of a random attack; `None` if this is one
    graph: PerturbedGraph  # on the CPU
    effort: Mapping[str, Any]  # forwards, seconds and trace; see `Effort`
    file: str  # name of the entry in the cache, if any
    reused: bool  # whether it came from the cache

    @cached_property
    def spent(self) -> SpentBudget:
        """Spent budget, counted from the graphs."""
        return spent_budget(self.task.graph, self.graph)

    @property
    def before(self) -> Float[Tensor, "t c"]:
        """Logits of the targets on the clean graph."""
        return self.task.logits_of(self.model, self.task.graph)

    @property
    def after(self) -> Float[Tensor, "t c"]:
        """Logits of the targets on the attacked graph."""
        return self.task.logits_of(self.model, self.graph)

    @property
    def clean_accuracy(self) -> float:
        """Accuracy of the attacked model at the targets of the clean graph, in 0..1."""
        return self.task.accuracy(self.before)

    @property
    def accuracy(self) -> float:
        """Accuracy of the attacked model at the targets of the attacked graph, in 0..1."""
        return self.task.accuracy(self.after)

    @property
    def problem(self) -> Problem:
        """The model and the clean graph as attacks see them."""
        x, edge_index = self.task.placed(self.task.graph)
        inputs = self.model, Data(x=x, edge_index=edge_index), self.task.targets.to(x.device)
        return self.task.once("problem", self.model, lambda: Problem("auto", *inputs))

    @property
    def grew(self) -> bool:
        """True if nodes were injected."""
        return self.graph.num_injected_nodes > 0

    @cached_property
    def is_blind(self) -> bool:
        """True if injected features make no difference to the model, so nothing can hurt it."""
        return self.grew and is_blind_to_edges(self.model, self.task, self.graph)

    @cached_property
    def flips_count(self) -> bool:
        """True if the attack injected nodes, or the model depends on the edges."""
        graph = self.task.placed(self.task.graph)
        return self.grew or self.task.once(
            "edges", self.model, lambda: sees_edges(self.model, *graph)
        )

    @cached_property
    def without_effect(self) -> list[Flag]:
        """A flag if the attack changes no prediction although it could."""
        idle = torch.equal(self.before.argmax(1), self.after.argmax(1))
        may_move = self.budget.node_ratio and _moves_features(self)
        flag = Flag("no_effect", "changes no prediction of the attacked model")
        return [flag] if idle and (may_move or self.flips_count) else []

    @cached_property
    def flags(self) -> list[Flag]:
        """Flags of an attack that exceeded its budget, or may be weaker than the worst case."""
        flags: list[Flag] = []
        with frozen(self.model):
            for check in ATTACK_CHECKS:
                # A poisoned graph need not harm a model that was trained on the clean one.
                if check.when(self) and not (check.of_effect and self.task.poisons):
                    with seeded(self.task.seed):
                        raised = list(check.find(self))
                    flags += [] if raised and check.of_effect and self.is_blind else raised
        return of_the_row(flags, self.accuracy)


@dataclass(frozen=True)
class Check:
    """A check of one attack, and the attacks that it applies to."""

    find: Callable[[Attempt], Iterable[Flag]]
    when: Callable[[Attempt], bool] = lambda _: True
    of_effect: bool = True  # only for evasions that can have an effect on the model


def _moves_features(attempt: Attempt) -> bool:
    return attempt.attack.is_worst_case or "feature_gradient" in attempt.attack.needs


def _covers(attempt: Attempt) -> bool:
    """Return whether an ensemble ran only covers, which place edges without edge gradients."""
    parts = attempt.graph.part_accuracy
    return bool(parts) and all(part.endswith(": cover") for part in parts)


def budget_overspent(attempt: Attempt) -> Iterator[Flag]:
    """Yield a flag for each limit that was exceeded, counted from the graphs."""
    limits = attempt.budget.bounds | dict.fromkeys(attempt.attack.unbounded)
    graphs, task = (attempt.task.graph, attempt.graph), attempt.task
    for violation in audit(*graphs, kind=attempt.attack.kind, target_nodes=task.reach, **limits):
        if violation.level == "error":
            yield Flag("budget_overspent", violation.message)


def budget_allows_nothing(attempt: Attempt) -> Iterator[Flag]:
    """Yield a flag if a modification changed nothing because its ratios round down to 0."""
    task, graph, budget = attempt.task, attempt.graph, attempt.budget
    x, edge_index = task.graph["x"], task.graph["edge_index"]
    unchanged = torch.equal(graph.x, x) and torch.equal(graph.edge_index, edge_index)
    edges, targets = edges_at(task.reach, edge_index, len(x)).size(1), task.reach.numel()
    flips = f"budget.edge_ratio={budget.edge_ratio} of {edges} edges is no flip"
    allowed = {flips: budget.max_flipped_edges(edges)}
    if attempt.attack.changes_features:
        nodes = f"budget.node_ratio={budget.node_ratio} of {targets} target nodes is no node"
        allowed[nodes] = budget.max_changed_nodes(targets)
    if attempt.attack.kind == "modification" and unchanged and not any(allowed.values()):
        yield Flag("budget_allows_nothing", ", ".join(allowed))


def no_edge_gradient(attempt: Attempt) -> Iterator[Flag]:
    """Yield a flag if the model has no gradient with respect to edges."""
    try:
        attempt.problem.check_edge_weights()
    except AttackError:
        yield Flag(
            "no_edge_gradient", "without a gradient in edge weights, edges move by measured gains"
        )


def rough_edge_gradient(attempt: Attempt) -> Iterator[Flag]:
    """Yield a flag if edges of weight 0 change the model's logits."""
    if not attempt.problem.drops_edges_of_weight_0:
        text = "edges of weight 0 change the logits, so the gradient of absent edges is a guess"
        yield Flag("rough_edge_gradient", text)


def gradient_flags(model: Classifier, task: Task, attacked: PerturbedGraph) -> Iterator[Flag]:
    """Yield flags if the gradient in the injected features is 0 or not finite.

    It is the gradient of the mean gap between the two highest logits, at the features that the
    attack ended with. This gap has a gradient even where the model is very confident.
    """
    n, (x, edge_index) = attacked.num_original_nodes, task.placed(attacked)
    new = x[n:].clone().requires_grad_()
    logits = model(torch.cat([x[:n], new]), edge_index)[task.targets.to(x.device)]
    first, second = logits.topk(2, 1).values.unbind(1)
    loss = (first - second).mean()
    slope: Tensor | None = None
    if loss.requires_grad:
        (slope,) = torch.autograd.grad(loss, new, allow_unused=True)
    slope = torch.zeros_like(new) if slope is None else slope
    if bad := float((~slope.isfinite()).any(1).float().mean()):
        text = f"gradient not finite at {100 * bad:.0f} % of the injected nodes"
        yield Flag("gradient_not_finite", text)
    connected = torch.isin(torch.arange(n, len(x), device=x.device), edge_index)
    if (zero := float((slope[connected] == 0).all(1).float().mean())) > HIDDEN:
        text = f"gradient exactly 0 at {100 * zero:.0f} % of the injected nodes that have an edge"
        yield Flag("zero_gradient", text)


def is_blind_to_edges(model: nn.Module, task: Task, attacked: PerturbedGraph) -> bool:
    """Return whether a model's logits at the targets are independent of injected features.

    No injection can harm such a model, so an attack without effect says nothing about the attack.
    The test uses features of real nodes, since a defence may prune dissimilar neighbours.
    """
    n, edges = attacked.num_original_nodes, attacked.edge_index
    new, old = edges[:, (edges[0] >= n) & (edges[1] < n)]
    x = attacked.x.clone()
    x[new] = x[old]
    other = replace(attacked, x=x)
    return torch.equal(task.logits_of(model, other), task.logits_of(model, attacked))


def weaker_than_chance(attempt: Attempt) -> Iterator[Flag]:
    """Yield a flag if a random attack does more harm to the model the attack was crafted on."""
    # A filter may drop the edges of an attack without effect but let random ones through.
    if attempt.chance and (not attempt.without_effect or attempt.is_blind):
        parts, reached = dict(attempt.graph.part_accuracy), attempt.accuracy
        if attempt.graph.part in (RandomInjection.name, RandomFlip.name):
            # An ensemble fell back on the random graph; its own parts are compared.
            del parts[attempt.graph.part]
            reached = min(parts.values(), default=attempt.clean_accuracy)
        yield from weaker_than(reached, attempt.chance(), "weaker_than_chance")


def parts_given_up(attempt: Attempt) -> Iterator[Flag]:
    """Yield a flag if some parts of an ensemble were dropped, with the reasons."""
    reasons = attempt.graph.given_up
    if reasons and not attempt.flips_count:  # parts that flip edges would have no effect anyway
        reasons = {part: why for part, why in reasons.items() if "edge weights" not in why}
    if reasons:
        number = f"{len(reasons)} of {len(reasons) + len(attempt.graph.part_accuracy)}"
        text = "; ".join(dict.fromkeys(reasons.values()))
        yield Flag("parts_given_up", f"{number} parts dropped: {text}")


def part_flags(accuracies: Mapping[str, float], clean: float) -> Iterator[Flag]:
    """Yield flags if the best parts of an ensemble differ, or a part raises the accuracy."""
    best = sorted(accuracies.values())[:3]
    if len(best) == 3 and best[2] - best[0] > PARTS_APART:
        text = ", ".join(f"{100 * accuracy:.2f}" for accuracy in best)
        yield Flag("not_converged", f"its three best parts leave {text} %")
    above = [part for part, accuracy in accuracies.items() if accuracy > clean + _POINT]
    if above:
        text = f"{len(above)} of {len(accuracies)} parts raise the accuracy, such as {above[0]!r}"
        yield Flag("part_above_clean", text)


def still_gaining(effort: Mapping[str, Any]) -> Iterator[Flag]:
    """Yield a flag if the accuracy still falls in the last third of the forward passes."""
    forwards, trace = effort["forwards"], effort["trace"]
    early = [accuracy for passes, _, accuracy in trace if 3 * passes <= 2 * forwards]
    lowest = trace[-1][2]
    if early and lowest > 0 and (gain := min(early) - lowest) > LATE_GAIN:
        text = f"accuracy falls by {100 * gain:.2f} points in the last third of {forwards} passes"
        yield Flag("not_converged", text)


def one_class(
    before: Int[Tensor, " t"], after: Int[Tensor, " t"], labels: Int[Tensor, " t"]
) -> Iterator[Flag]:
    """Yield a flag if an attack moves nearly all targets to one class, and spares that class."""

    def share(classes: Tensor) -> float:
        return int(classes.bincount().max()) / classes.numel() if classes.numel() else 0.0

    right = after == labels
    pairs = {"predictions": (before, after)} if right.any() else {}
    if right.sum() >= ENOUGH_RIGHT:
        pairs["correct predictions"] = labels[before == labels], labels[right]
    for name, (clean, now) in pairs.items():
        if share(now) > ONE_CLASS > share(clean):
            yield Flag("one_class", f"{100 * share(now):.0f} % of {name} are of one class")
            return


def loss_without_errors(
    clean: Float[Tensor, "t c"], attacked: Float[Tensor, "t c"], labels: Int[Tensor, " t"]
) -> Iterator[Flag]:
    """Yield a flag if an attack raises the loss but does not lower the accuracy."""
    losses = [float(F.cross_entropy(logits, labels)) for logits in (clean, attacked)]
    right = [accuracy(logits.argmax(1), labels) for logits in (clean, attacked)]
    rise, fall = losses[1] - losses[0], right[0] - right[1]
    if rise > RISE and fall <= _POINT:
        text = f"cross-entropy rises by {rise:.2f}, accuracy falls by {100 * fall:.2f} points"
        yield Flag("loss_without_errors", text)


def budget_unspent(budget: Budget, spent: SpentBudget) -> Iterator[Flag]:
    """Yield a flag if an injection leaves some of its budget unspent."""
    used = {"nodes": spent.injected_nodes, "edges": spent.injected_edges}
    allowed = {"nodes": budget.max_injected_nodes, "edges": sum(budget.injected_degrees)}
    if any(used[kind] < allowed[kind] for kind in used):
        counts = ", ".join(f"{used[kind]} of {allowed[kind]} {kind}" for kind in used)
        yield Flag("budget_unspent", f"spends {counts}")


ATTACK_CHECKS = (
    Check(budget_overspent, of_effect=False),
    Check(budget_allows_nothing, lambda a: a.task.poisons, of_effect=False),
    Check(no_edge_gradient, lambda a: a.grew and a.attack.is_worst_case and not _covers(a)),
    Check(
        # A worst-case attack also differentiates the adaptive form.
        lambda a: gradient_flags(
            adaptive_form(a.model) if a.attack.is_worst_case else a.model, a.task, a.graph
        ),
        lambda a: a.grew and _moves_features(a),
    ),
    Check(rough_edge_gradient, lambda a: "edge_gradient" in a.attack.needs),
    Check(parts_given_up),
    Check(lambda a: part_flags(a.graph.part_accuracy, a.clean_accuracy)),
    # An ensemble of flips moves features last, so it gains late as a rule.
    Check(lambda a: still_gaining(a.effort), lambda a: a.attack.is_worst_case and a.grew),
    Check(lambda a: one_class(a.before.argmax(1), a.after.argmax(1), a.task.labels)),
    Check(lambda a: a.without_effect and (list(budget_allows_nothing(a)) or a.without_effect)),
    Check(weaker_than_chance, lambda a: not a.task.poisons, of_effect=False),
    Check(lambda a: loss_without_errors(a.before, a.after, a.task.labels)),
    Check(
        lambda a: budget_unspent(a.budget, a.spent),
        # A worst-case attack has tried the whole budget as well as parts of it.
        lambda a: a.attack.kind == "injection" and not a.attack.is_worst_case,
        of_effect=False,
    ),
)
"""Checks of one attack, in the order in which reports and records list their flags."""
