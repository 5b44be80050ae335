"""Ways in which one attack may have been misled, and so found less harm than there is.

An attack that fails may have failed because the model is robust, or because the attack was misled.
`attack_flags` looks for the latter. A check yields its flags, none where it finds nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

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
from robust_diffusion.robustness.flags import POINT, Flag, of_the_row, weaker_than
from robust_diffusion.robustness.subject import Task, accuracy

ONE_CLASS = 0.9
"""Share of one class, above what it is on the clean graph, at which an attack has stopped short."""

PARTS_APART = 0.05
"""Accuracy, in 0..1, by which the three best parts of a converged ensemble differ at most."""

HIDDEN = 0.5
"""Share of injected nodes without a gradient from which an attack by gradients is misled."""

RISE = 1.0
"""Rise of the mean cross-entropy, in nats, that should have cost some accuracy."""


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


def attack_flags(of: Attempt) -> list[Flag]:
    """Signs that an attack broke its budget, or found less harm than there is."""
    limits = asdict(of.budget) | dict.fromkeys(of.attack.unbounded)
    broken = audit(
        of.task.graph, of.graph, kind=of.attack.kind, target_nodes=of.task.reach, **limits
    )
    flags = [Flag("budget_overspent", each.message) for each in broken if each.level == "error"]
    # A poisoned graph need not harm a model that was trained on the clean one.
    if of.task.poisons:
        flags += _nothing_allowed(of)
    else:
        flags += _misled(of)
    # A worst case has tried the whole budget as well as less.
    if of.attack.kind == "injection" and not of.attack.is_worst_case:
        flags += budget_unspent(of.budget, of.spent)
    return of_the_row(flags, of.task.accuracy(of.after))


def _misled(of: Attempt) -> Iterator[Flag]:
    """Signs that an attack that was allowed something found less harm than there is."""
    task, model, graph = of.task, of.model, of.graph
    before, after = of.before.argmax(1), of.after.argmax(1)
    idle, given_up = list(no_effect(before, after)), graph.given_up
    by_features = of.attack.is_worst_case or "feature_gradient" in of.attack.needs
    with frozen(model), seeded(of.seed):
        if len(graph.x) > graph.num_original_nodes:
            x, edges = task.placed(graph)
            there, targets = replace(graph, x=x, edge_index=edges), task.targets.to(task.device)
            if is_blind_to_edges(model, there, targets):
                # A filter may drop this attack's edges and let random ones through.
                yield from _weaker_than_chance(of)
                return
            # A worst case differentiates the adaptive form as well.
            seen = adaptive_form(model) if of.attack.is_worst_case else model
            yield from no_edge_gradient(model, task) if of.attack.is_worst_case else ()
            yield from gradient_flags(seen, there, targets) if by_features else ()
        elif (idle or given_up) and not sees_edges(model, *task.placed(task.graph)):
            given_up = {k: why for k, why in given_up.items() if "edge weights" not in why}
            idle = idle if by_features and of.budget.node_ratio else []
        if "edge_gradient" in of.attack.needs:
            yield from rough_edge_gradient(model, task)
    yield from parts_given_up(given_up, len(graph.part_accuracy))
    yield from part_flags(graph.part_accuracy, task.accuracy(of.before))
    yield from one_class(before, after, task.labels)
    if idle:
        yield from list(_nothing_allowed(of)) or idle
    else:
        yield from _weaker_than_chance(of)
    yield from loss_without_errors(of.before, of.after, task.labels)


def _weaker_than_chance(of: Attempt) -> Iterator[Flag]:
    """Yield a flag if random choices do more than the attack to the model it was crafted on."""
    if of.chance:
        yield from weaker_than(of.task.accuracy(of.after), of.chance(), "weaker_than_chance")


def _nothing_allowed(of: Attempt) -> Iterator[Flag]:
    """The share of the budget that is too small, if a modification changes nothing."""
    x, edge_index = of.task.graph.x, of.task.graph.edge_index
    assert x is not None
    assert edge_index is not None
    unchanged = torch.equal(of.graph.x, x) and torch.equal(of.graph.edge_index, edge_index)
    if of.attack.kind == "modification" and unchanged:
        edges = edges_at(of.task.reach, edge_index, len(x)).size(1)
        yield from budget_allows_nothing(of.budget, of.task.reach.numel(), edges)


def parts_given_up(given_up: Mapping[str, str], done: int) -> Iterator[Flag]:
    """An ensemble that had to do without some of its parts: why, by part; `done` were not."""
    if given_up:
        reasons = "; ".join(dict.fromkeys(given_up.values()))
        text = f"{len(given_up)} of {len(given_up) + done} parts given up: {reasons}"
        yield Flag("parts_given_up", text)


def budget_allows_nothing(budget: Budget, targets: int, edges: int) -> Iterator[Flag]:
    """A modification that may flip no edge, or change no node, since a share of few is none."""
    texts = []
    if budget.max_flipped_edges(edges) == 0:
        texts.append(f"budget.edge_ratio={budget.edge_ratio} of {edges} edges is no flip")
    if budget.max_changed_nodes(targets) == 0:
        texts.append(f"budget.node_ratio={budget.node_ratio} of {targets} target nodes is no node")
    if texts:
        yield Flag("budget_allows_nothing", ", ".join(texts))


def no_edge_gradient(model: nn.Module, task: Task) -> Iterator[Flag]:
    """A model that is asked in vain which edges would harm it."""
    try:
        _problem(model, task).check_edge_weights()
    except AttackError:
        yield Flag("no_edge_gradient", "without a gradient edges move by the targets' classes")


def rough_edge_gradient(model: nn.Module, task: Task) -> Iterator[Flag]:
    """A model whose gradient with respect to absent edges is that of another graph."""
    if not _problem(model, task).drops_edges_of_weight_0:
        text = "edges of weight 0 change the logits, so the gradient of absent edges is a guess"
        yield Flag("rough_edge_gradient", text)


def _problem(model: nn.Module, task: Task) -> Problem:
    x, edge_index = task.placed(task.graph)
    return Problem("auto", model, Data(x=x, edge_index=edge_index), task.targets.to(x.device))


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
) -> Iterator[Flag]:
    """An attack that drives nearly all targets to one class, whose own targets it leaves right.

    Args:
        before: Predictions at the targets of the clean graph.
        after: Predictions on the attacked graph.
        labels: Classes that they are driven away from.
    """

    def share(classes: Tensor) -> float:
        return int(classes.bincount().max()) / classes.numel() if classes.numel() else 0.0

    right = after == labels
    pairs = ((before, after), (labels[before == labels], labels[right]))
    shares = [share(now) for clean, now in pairs if share(now) > ONE_CLASS > share(clean)]
    if right.any() and shares:
        text = f"{100 * shares[0]:.0f} % of predictions, or of those right, are of one class"
        yield Flag("one_class", text)


def no_effect(before: Int[Tensor, " t"], after: Int[Tensor, " t"]) -> Iterator[Flag]:
    """An attack that changes no prediction."""
    if torch.equal(before, after):
        yield Flag("no_effect", "changes no prediction of the attacked model")


def gradient_flags(
    model: Classifier, attacked: PerturbedGraph, targets: Int[Tensor, " t"]
) -> Iterator[Flag]:
    """A model whose loss has no gradient, or none that is finite, in the injected features.

    The gradient is that of the mean gap between the two highest logits, which does not vanish where
    the model is sure of itself, at the features that the attack ended with.
    """
    n = attacked.num_original_nodes
    if len(attacked.x) == n:
        return
    new = attacked.x[n:].clone().requires_grad_()
    logits = model(torch.cat([attacked.x[:n], new]), attacked.edge_index)[targets]
    first, second = logits.topk(2, 1).values.unbind(1)
    loss = (first - second).mean()
    slope: Tensor | None = None
    if loss.requires_grad:
        (slope,) = torch.autograd.grad(loss, new, allow_unused=True)
    slope = torch.zeros_like(new) if slope is None else slope
    if bad := float((~slope.isfinite()).any(1).float().mean()):
        text = f"gradient not finite at {100 * bad:.0f} % of the injected nodes"
        yield Flag("gradient_not_finite", text)
    if (zero := float((slope == 0).all(1).float().mean())) > HIDDEN:
        text = f"gradient exactly 0 at {100 * zero:.0f} % of the injected nodes"
        yield Flag("zero_gradient", text)


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
) -> Iterator[Flag]:
    """An attack that raises the loss and costs no accuracy: its loss is not what decides."""
    losses = [float(F.cross_entropy(logits, labels)) for logits in (clean, attacked)]
    right = [accuracy(logits.argmax(1), labels) for logits in (clean, attacked)]
    rise, fall = losses[1] - losses[0], right[0] - right[1]
    if rise > RISE and fall <= POINT:
        text = f"cross-entropy rises by {rise:.2f}, accuracy falls by {100 * fall:.2f} points"
        yield Flag("loss_without_errors", text)


def budget_unspent(budget: Budget, spent: SpentBudget) -> Iterator[Flag]:
    """An injection that leaves some of its budget unspent."""
    used = {"nodes": spent.injected_nodes, "edges": spent.injected_edges}
    allowed = {"nodes": budget.max_injected_nodes, "edges": sum(budget.injected_degrees)}
    if any(used[of] < allowed[of] for of in used):
        counts = ", ".join(f"{used[of]} of {allowed[of]} {of}" for of in used)
        yield Flag("budget_unspent", f"spends {counts}")
