"""Flags: signs that an accuracy under attack is no bound on a model's robustness.

An attack that fails may have failed because the model is robust, or because the attack was misled.
`attack_flags` looks for ways of being misled, `victim_flags` for signs in the tested model's own
predictions; all that either can raise is listed in `Code`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, SpentBudget, seeded
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import Classifier, frozen
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.errors import AttackError
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.checked import sees_edges
from robust_diffusion.models.variants import with_solver
from robust_diffusion.robustness.solves import LARGEST_GROWTH
from robust_diffusion.robustness.subject import Task, accuracy

Code = Literal[
    "no_effect",
    "weaker_than_chance",
    "weaker_than_transfer",
    "zero_gradient",
    "gradient_not_finite",
    "loss_without_errors",
    "budget_without_effect",
    "stochastic",
    "solvers_disagree",
    "budget_unspent",
    "budget_overspent",
    "budget_allows_nothing",
    "parts_given_up",
    "no_edge_gradient",
    "not_converged",
    "part_above_clean",
    "one_class",
    "probabilities",
    "degree_leak",
    "logits_not_finite",
    "diverged",
]
CODES: tuple[Code, ...] = get_args(Code)

OF_THE_NUMBER: frozenset[Code] = frozenset(
    [
        *("stochastic", "solvers_disagree", "budget_overspent", "degree_leak"),
        *("logits_not_finite", "diverged"),
    ]
)
"""Flags that put the accuracy itself in doubt; the others say that an attack found too little."""

ONE_CLASS = 0.9
"""Share of one class, above what it is on the clean graph, at which an attack has stopped short."""

PARTS_APART = 0.05
"""Accuracy, in 0..1, by which the three best parts of a converged ensemble differ at most."""

POINT = 0.01
"""Accuracy, in 0..1, below which a difference tells nothing."""

HIDDEN = 0.5
"""Share of injected nodes without a gradient from which an attack by gradients is misled."""

RISE = 1.0
"""Rise of the mean cross-entropy, in nats, that should have cost some accuracy."""

FINER = ("rk4", 4)
"""The solver that a PDE is tested by once more, and its steps for each step of its own."""


@dataclass(frozen=True)
class Flag:
    """One sign that an accuracy under attack is not a bound."""

    code: Code  # what programs go by
    detail: str  # the same in a line, with the figures

    def __str__(self) -> str:
        """The line."""
        return self.detail


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attack on one model, and what it made."""

    task: Task
    model: nn.Module  # as the attacker sees it, in eval mode, on the task's device
    attack: Attack
    budget: Budget  # what was allowed
    seed: int
    graph: PerturbedGraph  # the attacked graph, on the CPU
    spent: SpentBudget  # what was used
    before: Float[Tensor, "t c"]  # logits of the targets on the clean graph
    after: Float[Tensor, "t c"]  # the same on the attacked graph
    chance: Callable[[], float] | None  # accuracy by random choices; none for such an attack


def of_the_row(flags: Iterable[Flag], accuracy: float) -> list[Flag]:
    """The flags that count for a row of a table, each once."""
    return [flag for flag in dict.fromkeys(flags) if accuracy > 0 or flag.code in OF_THE_NUMBER]


def attack_flags(of: Attempt) -> list[Flag]:
    """Signs that an attack broke its budget, or found less harm than there is."""
    limits = asdict(of.budget) | dict.fromkeys(of.attack.unbounded)
    broken = audit(
        of.task.graph, of.graph, kind=of.attack.kind, target_nodes=of.task.reach, **limits
    )
    flags = [
        Flag("budget_overspent", violation.message)
        for violation in broken
        if violation.level == "error"
    ]
    shares = of.budget.injected_degrees, (of.budget.edge_ratio, of.budget.node_ratio)
    # A poisoned graph need not harm a model that was trained on the clean one.
    if of.task.poisons:
        flags += [flag] if (flag := _nothing_allowed(of)) else []
    elif any(shares[of.attack.kind == "modification"]):
        flags += _misled(of)
    # A worst case has tried the whole budget as well as less.
    is_one_try = of.attack.kind == "injection" and not of.attack.is_worst_case
    if is_one_try and (flag := budget_unspent(of.budget, of.spent)):
        flags.append(flag)
    return of_the_row(flags, of.task.accuracy(of.after))


def _misled(of: Attempt) -> Iterator[Flag]:
    """Signs that an attack that was allowed something found less harm than there is."""
    task, model, graph = of.task, of.model, of.graph
    idle, given_up = no_effect(of.before.argmax(1), of.after.argmax(1)), graph.given_up
    by_features = of.attack.is_worst_case or "feature_gradient" in of.attack.needs
    with frozen(model), seeded(of.seed):
        if len(graph.x) > graph.num_original_nodes:
            x, edges = task.placed(graph)
            there, targets = replace(graph, x=x, edge_index=edges), task.targets.to(task.device)
            if is_blind_to_edges(model, there, targets):
                return
            # A worst case differentiates the adaptive form as well.
            seen = adaptive_form(model) if of.attack.is_worst_case else model
            if of.attack.is_worst_case and (flag := no_edge_gradient(model, task)):
                yield flag
            yield from gradient_flags(seen, there, targets) if by_features else ()
        elif (idle or given_up) and not sees_edges(model, *task.placed(task.graph)):
            given_up = {k: why for k, why in given_up.items() if "edge weights" not in why}
            idle = idle if by_features and of.budget.node_ratio else None
    if flag := parts_given_up(given_up, len(graph.part_accuracy)):
        yield flag
    after = task.accuracy(of.after)
    yield from part_flags(graph.part_accuracy, task.accuracy(of.before))
    if flag := one_class(of.before.argmax(1), of.after.argmax(1), task.labels):
        yield flag
    if idle:
        yield _nothing_allowed(of) or idle
    elif of.chance and (flag := weaker_than(after, of.chance(), "weaker_than_chance")):
        yield flag
    if flag := loss_without_errors(of.before, of.after, task.labels):
        yield flag


def _nothing_allowed(of: Attempt) -> Flag | None:
    """The share of the budget that is too small, if a modification changes nothing."""
    x, edge_index = of.task.graph.x, of.task.graph.edge_index
    assert x is not None
    assert edge_index is not None
    unchanged = torch.equal(of.graph.x, x) and torch.equal(of.graph.edge_index, edge_index)
    if of.attack.kind == "injection" or not unchanged:
        return None
    edges = edges_at(of.task.reach, edge_index, len(x)).size(1)
    return budget_allows_nothing(of.budget, of.task.reach.numel(), edges)


def parts_given_up(given_up: Mapping[str, str], done: int) -> Flag | None:
    """An ensemble that had to do without some of its parts: why, by part; `done` were not."""
    if not given_up:
        return None
    reasons = "; ".join(dict.fromkeys(given_up.values()))
    text = f"{len(given_up)} of {len(given_up) + done} parts given up: {reasons}"
    return Flag("parts_given_up", text)


def budget_allows_nothing(budget: Budget, targets: int, edges: int) -> Flag | None:
    """A modification that may flip no edge, or change no node, since a share of few is none."""
    texts = []
    if budget.max_flipped_edges(edges) == 0:
        texts.append(f"budget.edge_ratio={budget.edge_ratio} of {edges} edges is no flip")
    if budget.max_changed_nodes(targets) == 0:
        texts.append(f"budget.node_ratio={budget.node_ratio} of {targets} target nodes is no node")
    return Flag("budget_allows_nothing", ", ".join(texts)) if texts else None


def no_edge_gradient(model: nn.Module, task: Task) -> Flag | None:
    """A model that is asked in vain which edges would harm it."""
    x, edge_index = task.placed(task.graph)
    data = Data(x=x, edge_index=edge_index)
    try:
        Problem("auto", model, data, task.targets.to(x.device)).check_edge_weights()
    except AttackError:
        return Flag("no_edge_gradient", "without a gradient edges move by the targets' classes")
    return None


def part_flags(accuracies: Mapping[str, float], clean: float) -> Iterator[Flag]:
    """An ensemble whose best parts differ widely, or some part of which raised the accuracy.

    Args:
        accuracies: Of each part, in 0..1.
        clean: Accuracy on the clean graph, in 0..1.
    """
    best = sorted(accuracies.values())[:3]
    if len(best) == 3 and best[2] - best[0] > PARTS_APART:
        text = ", ".join(f"{100 * accuracy:.2f}" for accuracy in best)
        yield Flag("not_converged", f"its three best parts leave {text} %")
    above = [part for part, accuracy in accuracies.items() if accuracy > clean + POINT]
    if above:
        text = f"{len(above)} of {len(accuracies)} parts raise the accuracy, such as {above[0]!r}"
        yield Flag("part_above_clean", text)


def one_class(
    before: Int[Tensor, " t"], after: Int[Tensor, " t"], labels: Int[Tensor, " t"]
) -> Flag | None:
    """An attack that drives nearly all targets to one class, whose own targets it leaves right.

    Args:
        before: Predictions at the targets of the clean graph.
        after: Predictions on the attacked graph.
        labels: Classes that they are driven away from.
    """

    def share(classes: Tensor) -> float:
        return int(classes.bincount().max()) / classes.numel() if classes.numel() else 0.0

    right = after == labels
    for clean, now in ((before, after), (labels[before == labels], labels[right])):
        if right.any() and share(now) > ONE_CLASS > share(clean):
            text = f"{100 * share(now):.0f} % of predictions, or of those right, are of one class"
            return Flag("one_class", text)
    return None


def no_effect(before: Int[Tensor, " t"], after: Int[Tensor, " t"]) -> Flag | None:
    """An attack that changes no prediction."""
    if not torch.equal(before, after):
        return None
    return Flag("no_effect", "changes no prediction of the attacked model")


def weaker_than(
    accuracy: float, other: float, code: Literal["weaker_than_chance", "weaker_than_transfer"]
) -> Flag | None:
    """An attack that a weaker adversary outdoes on the same model, both accuracies in 0..1."""
    # Chance is one draw of many, and a transferred attack has seen another model: any accuracy
    # below the attack's own shows that this one has not found what there is.
    if accuracy <= other:
        return None
    name = code.removeprefix("weaker_than_")
    return Flag(code, f"weaker than {name}: {100 * accuracy:.2f} % against {100 * other:.2f} %")


def gradient_flags(
    model: Classifier, attacked: PerturbedGraph, targets: Int[Tensor, " t"]
) -> list[Flag]:
    """A model whose loss has no gradient, or none that is finite, in the injected features.

    The gradient is that of the mean gap between the two highest logits, which does not vanish where
    the model is sure of itself, at the features that the attack ended with.
    """
    n = attacked.num_original_nodes
    injected = attacked.x[n:]
    if not injected.numel():
        return []
    new = injected.clone().requires_grad_()
    logits = model(torch.cat([attacked.x[:n], new]), attacked.edge_index)[targets]
    first, second = logits.topk(2, 1).values.unbind(1)
    loss = (first - second).mean()
    slope: Tensor | None = None
    if loss.requires_grad:
        (slope,) = torch.autograd.grad(loss, new, allow_unused=True)
    slope = torch.zeros_like(new) if slope is None else slope
    flags = []
    bad = float((~slope.isfinite()).any(1).float().mean())
    if bad:
        text = f"gradient not finite at {100 * bad:.0f} % of the injected nodes"
        flags.append(Flag("gradient_not_finite", text))
    zero = float((slope == 0).all(1).float().mean())
    if zero > HIDDEN:
        text = f"gradient exactly 0 at {100 * zero:.0f} % of the injected nodes"
        flags.append(Flag("zero_gradient", text))
    return flags


def is_blind_to_edges(
    model: Classifier, attacked: PerturbedGraph, targets: Int[Tensor, " t"]
) -> bool:
    """True of a model whose logits at the targets do not depend on injected features at all.

    Nothing that is injected can hurt it, so that an attack without effect is no sign of anything.
    Tried are features of real nodes, which a defence that prunes unlike neighbours lets through.
    """
    n, edges = attacked.num_original_nodes, attacked.edge_index
    new, old = edges[:, (edges[0] >= n) & (edges[1] < n)]
    x = attacked.x.clone()
    x[new] = x[old]
    with torch.no_grad():
        before = model(attacked.x, edges)[targets]
        return torch.equal(model(x, edges)[targets], before)


def loss_without_errors(
    clean: Float[Tensor, "t c"], attacked: Float[Tensor, "t c"], labels: Int[Tensor, " t"]
) -> Flag | None:
    """An attack that raises the loss and costs no accuracy: its loss is not what decides."""
    losses = [float(F.cross_entropy(logits, labels)) for logits in (clean, attacked)]
    right = [accuracy(logits.argmax(1), labels) for logits in (clean, attacked)]
    rise, fall = losses[1] - losses[0], right[0] - right[1]
    if not rise > RISE or fall > POINT:
        return None
    text = f"cross-entropy rises by {rise:.2f}, accuracy falls by {100 * fall:.2f} points"
    return Flag("loss_without_errors", text)


def budget_unspent(budget: Budget, spent: SpentBudget) -> Flag | None:
    """An injection that leaves some of its budget unspent."""
    nodes, edges = budget.max_injected_nodes, sum(budget.injected_degrees)
    if spent.injected_nodes >= nodes and spent.injected_edges >= edges:
        return None
    text = (
        f"spends {spent.injected_nodes} of {nodes} nodes, {spent.injected_edges} of {edges} edges"
    )
    return Flag("budget_unspent", text)


def budget_without_effect(accuracies: Sequence[tuple[int, float]]) -> Flag | None:
    """An attack on which more budget has no more effect, though it has not won yet.

    Args:
        accuracies: Per budget, in injected nodes, the accuracy in 0..1; at least two budgets.
    """
    ordered = sorted(accuracies)
    (few, first), (many, last) = ordered[0], ordered[-1]
    if last < first - POINT or last <= POINT or few == many:
        return None
    text = f"{100 * first:.2f} % with {few} injected, {100 * last:.2f} % with {many}"
    return Flag("budget_without_effect", text)


def victim_flags(
    victim: nn.Module, task: Task, seed: int, norm_growth: float | None = 0.0
) -> list[Flag]:
    """Signs in the tested model's own behaviour, which every accuracy of it depends on."""
    flags = [flag] if (flag := stochastic(victim, *task.placed(task.graph))) else []
    if norm_growth is None or norm_growth > LARGEST_GROWTH:
        factor = "without bound" if norm_growth is None else f"{norm_growth:.3g}-fold"
        text = f"the state's norm grows {factor} through a solve; more or shorter steps may hold it"
        flags.append(Flag("diverged", text))
    return flags


def prediction_flags(
    victim: nn.Module,
    task: Task,
    graph: Data | PerturbedGraph,
    logits: Float[Tensor, "t c"],
    seed: int,
) -> Iterator[Flag]:
    """Signs in the tested model's predictions on one graph: no numbers, or another solver's."""
    if broken := int((~logits.isfinite()).any(1).sum()):
        where = f"{broken} of {len(logits)} target nodes"
        yield Flag("logits_not_finite", f"the victim's logits are not finite at {where}")
    if (finer := with_solver(victim, FINER[0], refine=FINER[1])) is not None:
        name = f"{FINER[0]} of {FINER[1]} times the steps"
        by_finer = task.accuracy(task.logits_of(finer, graph, seed))
        own = {"own solver": task.accuracy(logits)}
        if flag := solvers_disagree(own | {name: by_finer}):
            yield flag


def stochastic(
    model: Classifier, x: Float[Tensor, "m f"], edge_index: Int[Tensor, "2 e"]
) -> Flag | None:
    """A model in eval mode whose forward passes on one graph differ."""
    with torch.no_grad(), seeded(0):
        first, second = model(x, edge_index), model(x, edge_index)
    if torch.equal(first.nan_to_num(), second.nan_to_num()):
        return None
    changed = float((first.argmax(1) != second.argmax(1)).float().mean())
    return Flag("stochastic", f"two forward passes differ in {100 * changed:.1f} % of the classes")


def solvers_disagree(accuracies: Mapping[str, float]) -> Flag | None:
    """An accuracy that depends on the solver by which the same network is tested."""
    (own, accuracy), *others = accuracies.items()
    name, other = max(others, key=lambda item: abs(item[1] - accuracy), default=(own, accuracy))
    if abs(other - accuracy) <= POINT:
        return None
    text = f"{own} gives {100 * accuracy:.2f} %, {name} {100 * other:.2f} %"
    return Flag("solvers_disagree", f"test solvers disagree: {text}")
