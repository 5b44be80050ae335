"""Flags: reasons not to read an accuracy as a bound.

An attack may fail because the model is robust, or because the attack was misled. A check is a
function of a victim, a task and the result of an attack on it that yields flags; `CHECKS` lists
them, and `flag_codes.DECLARED` all flags.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import (
    Attack,
    Budget,
    PerturbedGraph,
    RandomFlip,
    RandomInjection,
    SpentBudget,
    Task,
    seeded,
)
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import Kind
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.attacks.task import accuracy
from robust_diffusion.checks import check_choice
from robust_diffusion.errors import TrainingError
from robust_diffusion.evaluation.flag_codes import DECLARED, OF_THE_NUMBER
from robust_diffusion.models.victim import FINER, Victim, sorted_by
from robust_diffusion.system.tensor_hashes import tensor_hash

Outdone = Literal["weaker_than_chance", "weaker_than_transfer"]

_WEAKER: Mapping[Outdone, str] = {
    "weaker_than_chance": "the random control",
    "weaker_than_transfer": "an attack crafted on another model",
}
"""Attacker that did more harm, by the flag of the attack that it beat."""

_POINT = 0.01
"""Smallest difference in accuracy, in 0..1, that counts as a difference."""

ONE_CLASS = 0.9
"""Share of one class, not reached on the clean graph, above which an attack counts as stopped
short."""

ENOUGH_RIGHT = 10
"""Fewest correct predictions whose classes are checked; fewer may be of one class at random."""

PARTS_APART = 0.05
"""Largest difference in accuracy, in 0..1, of the three best parts of a converged ensemble."""

LATE_GAIN = 0.02
"""Fall of the accuracy, in 0..1, in the last third of the passes of an attack that needed more."""

SMALL_STEP = 1e-3
"""Step of each feature, in units of the budget, that tests a gradient."""

MISLED = 0.1
"""Share of the predicted gain below which a gradient misleads. On Cora's zoo, all models gain 0.36
to 1.04 but BeltramiGuard, with less than 0.001."""

ROUNDING_SHARE = 1e-5
"""Smallest predicted gain, as a share of the loss, that rounding in float32 does not hide."""

HIDDEN = 0.5
"""Share of injected nodes without a gradient above which a gradient attack counts as misled."""

RISE = 1.0
"""Rise of the mean cross-entropy, in nats, that should have cost some accuracy."""


CONTROLS: Mapping[Kind, Attack] = {"injection": RandomInjection(), "modification": RandomFlip()}
"""Random attack of each kind; the control that every attack has to beat with the same budget."""


def control_of(attack: Attack) -> Attack:
    """Return the random control of an attack."""
    return CONTROLS[attack.kind]


def is_random(attack: Attack) -> bool:
    """Return whether an attack is random, perhaps with other options than its control."""
    return type(attack) is type(control_of(attack))


def graph_hash(graph: Data, targets: Int[Tensor, " t"]) -> str:
    """Return a hash of features, edges in any order, classes and target nodes."""
    (edges,) = sorted_by(0, graph["edge_index"])
    return tensor_hash(graph["x"], edges, graph["y"], targets)


@dataclass(frozen=True)
class Flag:
    """One reason not to read an accuracy under attack as a bound."""

    code: str  # for programs: a key of `flag_codes.DECLARED`
    detail: str  # for readers: one line with the figures

    def __post_init__(self) -> None:
        """Raise a `ConfigError` if the code is of no flag."""
        check_choice("flag", self.code, DECLARED)

    def __str__(self) -> str:
        """Return the line for readers."""
        return self.detail


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackResult:
    """One attack on one victim: its graph, its cost, and its flags."""

    name: str  # unique name of the attacked graph
    row: str  # name of the row of a table that shows it, perhaps with others
    attack: Attack
    budget: Budget  # limits of the attack
    victim: Victim  # the attacked model, in the form that was attacked
    surrogate: str = ""  # its name; "" for the tested model
    graph: PerturbedGraph  # on the CPU
    labels: Int[Tensor, " t"]  # true classes of the targets
    before: Float[Tensor, "t c"]  # logits of the targets on the clean graph, on the CPU
    after: Float[Tensor, "t c"]  # logits of the targets on the attacked graph, on the CPU
    spent: SpentBudget  # counted from the graphs
    effort: Mapping[str, Any]  # forwards, seconds and trace; see `measure.Effort`
    chance: float | None = None  # accuracy of the victim under the control, if that was run
    file: str = ""  # name of the entry in the cache, if any
    reused: bool = False  # whether it came from the cache
    flags: Sequence[Flag] = ()

    @property
    def clean_accuracy(self) -> float:
        """Accuracy of the victim at the targets of the clean graph, in 0..1."""
        return accuracy(self.before.argmax(1), self.labels)

    @property
    def accuracy(self) -> float:
        """Accuracy of the victim at the targets of the attacked graph, in 0..1."""
        return accuracy(self.after.argmax(1), self.labels)

    @property
    def grew(self) -> bool:
        """True if nodes were injected."""
        return self.graph.num_injected_nodes > 0

    @property
    def is_control(self) -> bool:
        """True if this is the random control."""
        return self.attack is control_of(self.attack)


def of_the_row(flags: Iterable[Flag], accuracy: float) -> list[Flag]:
    """Return the flags that apply to a row of a table, without duplicates."""
    return [flag for flag in dict.fromkeys(flags) if accuracy > 0 or flag.code in OF_THE_NUMBER]


def random_flags(victim: Victim) -> Iterator[Flag]:
    """Yield a flag if forward passes of a model in eval mode differ on one graph."""
    if (change := victim.traits.change) is not None:
        yield Flag(
            "stochastic", f"two forward passes differ in {100 * change:.1f} % of the classes"
        )


def prediction_flags(
    victim: Victim, task: Task, graph: Data | PerturbedGraph, logits: Float[Tensor, "t c"]
) -> Iterator[Flag]:
    """Yield flags if predictions of the tested model are not finite or depend on the solver."""
    if broken := int((~logits.isfinite()).any(1).sum()):
        where = f"{broken} of {len(logits)} target nodes"
        yield Flag("logits_not_finite", f"the victim's logits are not finite at {where}")
    model = victim.model
    if victim.finer is None or not isinstance(model, nn.Module):
        return
    parts = [part for part in model.modules() if hasattr(part, "solver")]
    name = f"{FINER[0]} of {FINER[1]} times the steps"
    if any(getattr(part.solver, "rtol", None) for part in parts):
        name = "at a hundredth of its tolerances"
    elif any(getattr(getattr(part, "flow", None), "order", 1) != 1 for part in parts):
        # A fractional flow takes the solver's steps, but never its method.
        name = f"fractional predictor of {FINER[1]} times the steps"
    with suppress(TrainingError):  # the finer solver may exceed the limit on its steps
        by_finer = task.accuracy(victim.finer.predict(graph, task.seed))
        yield from solvers_disagree({"its own": task.share(logits), name: by_finer})


def solvers_disagree(accuracies: Mapping[str, float]) -> Iterator[Flag]:
    """Yield a flag if an accuracy depends on the solver by which the same network is tested."""
    (solver, accuracy), *others = accuracies.items()
    name, other = max(others, key=lambda item: abs(item[1] - accuracy), default=(solver, accuracy))
    if abs(other - accuracy) > _POINT:
        text = f"{solver} gives {100 * accuracy:.2f} %, {name} {100 * other:.2f} %"
        yield Flag("solvers_disagree", f"the accuracy depends on the solver: {text}")


def weaker_than(accuracy: float, other: float, code: Outdone) -> Iterator[Flag]:
    """Yield a flag if a weaker attacker does more harm to the same model; accuracies in 0..1."""
    # A random attack is a single draw, and a transferred attack has only seen another model. If
    # either reaches a lower accuracy, this attack has missed an attack that exists.
    if accuracy > other:
        text = f"{100 * accuracy:.2f} % against {100 * other:.2f} %"
        yield Flag(code, f"weaker than {_WEAKER[code]}: {text}")


def moves_features(attack: Attack) -> bool:
    """Return whether an attack moves features by a gradient."""
    return attack.is_worst_case or "feature_gradient" in attack.needs


def is_blind(victim: Victim, task: Task, attacked: PerturbedGraph) -> bool:
    """Return whether a model's logits at the targets are independent of injected features.

    No injection can harm such a model, so an attack without effect says nothing about the attack.
    The test uses features of real nodes, since a defence may prune dissimilar neighbours.
    """
    if not attacked.num_injected_nodes:
        return False
    n, edges = attacked.num_original_nodes, attacked.edge_index
    new, old = edges[:, (edges[0] >= n) & (edges[1] < n)]
    features = attacked.x[n:].clone()
    features[new - n] = task.x[old]
    graphs = replace(attacked, x=torch.cat([task.x, features])), attacked
    moved, before = (victim.predict(graph, task.seed)[task.targets] for graph in graphs)
    return torch.equal(moved, before)


def may_flip(victim: Victim, result: AttackResult) -> bool:
    """Return whether the attack injected nodes, or the model depends on the edges."""
    return result.grew or victim.reads_edges


def is_idle(victim: Victim, result: AttackResult) -> bool:
    """Return whether an attack changes no prediction although it could."""
    idle = torch.equal(result.before.argmax(1), result.after.argmax(1))
    may_move = result.budget.node_ratio and moves_features(result.attack)
    return bool(idle and (may_move or may_flip(victim, result)))


def budget_overspent(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield a flag for each limit that was exceeded, counted from the graphs."""
    limits = result.budget.bounds | dict.fromkeys(result.attack.unbounded)
    kind = result.attack.kind
    for violation in audit(task.graph, result.graph, kind=kind, target_nodes=task.reach, **limits):
        if violation.level == "error":
            yield Flag("budget_overspent", violation.message)


def budget_allows_nothing(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield a flag if a modification changed nothing because its ratios round down to 0."""
    graph, budget, attack = result.graph, result.budget, result.attack
    if attack.kind != "modification":
        return
    unchanged = torch.equal(graph.x, task.x) and torch.equal(graph.edge_index, task.edge_index)
    edges = edges_at(task.reach, task.edge_index, len(task.x)).size(1)
    targets = task.reach.numel()
    flips = f"budget.edge_ratio={budget.edge_ratio} of {edges} edges is no flip"
    allowed = {flips: budget.max_flipped_edges(edges)}
    if attack.changes_features:
        nodes = f"budget.node_ratio={budget.node_ratio} of {targets} target nodes is no node"
        allowed[nodes] = budget.max_changed_nodes(targets)
    if unchanged and not any(allowed.values()):
        yield Flag("budget_allows_nothing", ", ".join(allowed))


def no_edge_gradient(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield a flag if `auto` had no gradient in edges by which to move them.

    A cover places edges without one.
    """
    parts = result.graph.part_accuracy
    only_covers = bool(parts) and all(part.endswith(": cover") for part in parts)
    applies = result.grew and result.attack.is_worst_case and not only_covers
    if applies and victim.edge_gradient == "none":
        yield Flag(
            "no_edge_gradient",
            "no gradient in edge weights; the attack places edges by trial",
        )


def gradient_flags(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield flags if the gradient in the injected features is 0, not finite, or misleading.

    It is misleading if a small step along its sign changes the loss by far less than it predicts,
    as where it is reversed, or belongs to ripples much finer than any step.

    It is the gradient of the mean gap between the two highest logits, at the features that the
    attack ended with. This gap has a gradient even where the model is very confident. A worst-case
    attack also differentiates the adaptive form.
    """
    if not (result.grew and moves_features(result.attack)):
        return
    form = victim.adaptive() if result.attack.is_worst_case else victim
    n, device = result.graph.num_original_nodes, victim.device
    edge_index = result.graph.edge_index.to(device)
    new = result.graph.x[n:].to(device, copy=True).requires_grad_()

    def gap(new: Tensor) -> Tensor:
        with seeded(task.seed):
            logits = form(form.with_rows(new), edge_index)[task.targets.to(device)]
        first, second = logits.topk(2, 1).values.unbind(1)
        mean: Tensor = (first - second).mean()
        return mean

    loss = gap(new)
    slope: Tensor | None = None
    if loss.requires_grad:
        (slope,) = torch.autograd.grad(loss, new, allow_unused=True)
    slope = torch.zeros_like(new) if slope is None else slope
    if bad := float((~slope.isfinite()).any(1).float().mean()):
        text = f"gradient not finite at {100 * bad:.0f} % of the injected nodes"
        yield Flag("gradient_not_finite", text)
    connected = torch.isin(torch.arange(n, n + len(new), device=device), edge_index)
    if (zero := float((slope[connected] == 0).all(1).float().mean())) > HIDDEN:
        text = f"gradient exactly 0 at {100 * zero:.0f} % of the injected nodes that have an edge"
        yield Flag("zero_gradient", text)
    step = SMALL_STEP * result.budget.unit * slope.sign()
    predicted = float((step * slope).sum())
    if not bad and predicted > ROUNDING_SHARE * max(1.0, abs(float(loss.detach()))):
        with torch.no_grad():
            share = float(gap(new + step) - loss) / predicted
        if share < MISLED:
            text = f"a small step along the gradient gains {share:.3f} of what it predicts"
            yield Flag("misleading_gradient", text)


def rough_edge_gradient(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield a flag if edges of weight 0 change the model's logits."""
    if "edge_gradient" in result.attack.needs and victim.edge_gradient == "rough":
        text = "edges of weight 0 change the logits, so the gradient of absent edges is a guess"
        yield Flag("rough_edge_gradient", text)


def parts_given_up(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield a flag if some parts of an ensemble were dropped, with the reasons."""
    given_up = [*result.graph.given_up.values()]
    if given_up and not may_flip(victim, result):  # parts that flip edges would have no effect
        given_up = [part for part in given_up if part.variable != "edge weights"]
    if given_up:
        number = f"{len(given_up)} of {len(given_up) + len(result.graph.part_accuracy)}"
        text = "; ".join(dict.fromkeys(part.reason for part in given_up))
        yield Flag("parts_given_up", f"{number} parts dropped: {text}")


def part_flags(accuracies: Mapping[str, float], clean: float) -> Iterator[Flag]:
    """Yield flags if the best parts of an ensemble differ, or a part raises the accuracy."""
    # An exchange starts from the best of the others, so it agrees with that one anyway.
    apart = {part: value for part, value in accuracies.items() if not part.endswith(": exchange")}
    best = sorted(apart.values())[:3]
    if len(best) == 3 and best[2] - best[0] > PARTS_APART:
        text = ", ".join(f"{100 * accuracy:.2f}" for accuracy in best)
        yield Flag("not_converged", f"its three best parts end at {text} %, far apart")
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


def weaker_than_chance(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    """Yield a flag if a random attack does more harm to the model the attack was crafted on."""
    if result.chance is None:
        return
    # A filter may drop the edges of an attack without effect but let random ones through.
    if is_idle(victim, result) and not is_blind(victim, task, result.graph):
        return
    parts, reached = dict(result.graph.part_accuracy), result.accuracy
    if result.graph.part in {control.name for control in CONTROLS.values()}:
        # An ensemble fell back on the random graph; its own parts are compared.
        del parts[result.graph.part]
        reached = min(parts.values(), default=result.clean_accuracy)
    yield from weaker_than(reached, result.chance, "weaker_than_chance")


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


def _parts(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    return part_flags(result.graph.part_accuracy, result.clean_accuracy)


def _late_gain(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    # An ensemble of flips moves features last, so it gains late as a rule.
    if result.attack.is_worst_case and result.grew:
        yield from still_gaining(result.effort)


def _one_class(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    return one_class(result.before.argmax(1), result.after.argmax(1), result.labels)


def _no_effect(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    if is_idle(victim, result):
        known = list(budget_allows_nothing(victim, task, result))
        yield from known or [Flag("no_effect", "changes no prediction of the attacked model")]


def _loss(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    return loss_without_errors(result.before, result.after, result.labels)


def _unspent(victim: Victim, task: Task, result: AttackResult) -> Iterator[Flag]:
    # A worst-case attack has tried the whole budget as well as parts of it.
    if result.attack.kind == "injection" and not result.attack.is_worst_case:
        yield from budget_unspent(result.budget, result.spent)


Check = Callable[[Victim, Task, AttackResult], Iterable[Flag]]

CHECKS: Sequence[Check] = (
    budget_overspent,
    no_edge_gradient,
    gradient_flags,
    rough_edge_gradient,
    parts_given_up,
    _parts,
    _late_gain,
    _one_class,
    _no_effect,
    weaker_than_chance,
    _loss,
    _unspent,
)
"""Checks of one attack, in the order in which reports and records list their flags."""


def attack_flags(victim: Victim, task: Task, result: AttackResult) -> list[Flag]:
    """Return the flags of an attack that exceeded its budget, or may be weaker than the worst case.

    A poisoned graph need not harm a model that was trained on the clean one, so only the budget is
    checked then.
    """
    if task.poisons:
        checks: Sequence[Check] = (budget_overspent, budget_allows_nothing, _unspent)
        flags = [flag for check in checks for flag in check(victim, task, result)]
        return of_the_row(flags, result.accuracy)
    blind = cache(lambda: is_blind(victim, task, result.graph))
    with victim:
        flags = [
            flag
            for check in CHECKS
            for flag in check(victim, task, result)
            if DECLARED[flag.code].of_blind or not blind()
        ]
    return of_the_row(flags, result.accuracy)
