"""`auto` for injections: an ensemble that estimates the worst case."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Kind, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.ensemble import Ensemble, Parts
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.gradient_ascent import Found, StepRule, climb
from robust_diffusion.attacks.injection.base import STARTS
from robust_diffusion.attacks.injection.cover import Cover
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS, SharingName
from robust_diffusion.attacks.injection.edge_placement import Placement, reallocate
from robust_diffusion.attacks.losses import LossName, tanh_margin
from robust_diffusion.checks import Steps, validated
from robust_diffusion.system.artifact import Artifact

_EDGES: tuple[SharingName, ...] = ("equal", "apart")
_LOSSES: tuple[LossName, ...] = ("logit", "masked")

SPENDINGS: tuple[tuple[int | None, bool], ...] = (
    (None, False),
    (None, True),
    (4, False),
    (1, False),
)
"""Edges per target (`None` for all that the budget has), and whether some of a node's edges lead to
other new nodes. More edges are not always more harmful: each edge slows a flow whose modulation
divides by the degree."""

LINKED = 1 / 4
"""Share of a node's edges that link it to other new nodes, if links are tried. Links spread the
effect that one target's class has on the node it is joined to."""

RUNGS = ((1 / 24, 16), (1 / 16, 6), (1 / 8, 4), (1 / 8, 3))
"""For each rung, its share of the steps and the number of parts that take them."""

BEHIND = 0.1
"""Largest accuracy, in 0..1, by which a part may trail the best one and still continue. It does not
apply next to a cover, since the edges of the other parts have yet to move to where they are needed.
"""

SEARCHED = ("", ", an edge a target")
"""Spendings, in words, for which the search without gradients is run."""

SEARCH_SHARE = 1 / 8
"""Mutations of each search, per step of `num_steps`."""

LAST_SHARE, REALLOCATIONS, REFIT_SHARE, MOST_ROUNDS = 1 / 4, 4, 1 / 12, 16
"""Final rounds of the best parts: share of the steps per round, number of edge reallocations after
them, share of the steps per reallocation, and the largest number of rounds."""

IDLE_ROUNDS, ENOUGH = 3, 0.01
"""Final rounds in a row without a gain after which the attack ends. Below an accuracy of `ENOUGH`,
in 0..1, only the best part continues, and one round without a gain ends the attack."""

COVERED, ASCENDED = 2, 1 / 5
"""Most edges per correctly classified target for which a cover is tried, and fewest for which the
ascents run. In between, both run: models that carry features far lose more to the ascents."""

EXCHANGE_SHARE = 1 / 3
"""Most exchanges of a cover's ends, per step of `num_steps`."""

MUTATION = 0.3
"""Largest share of a node's features that one mutation mirrors."""

CROSSED = 0.2
"""Share of the nodes that take half of their features from another node instead."""


@dataclass(frozen=True, eq=False)
class Climb:
    """One gradient ascent."""

    name: str  # in the record
    form: Victim  # the form of the model that is differentiated
    num_targets: int  # number of targets
    edges: SharingName | Literal["cover"]  # how the new nodes distribute their edges
    steps: StepRule  # loss and steps
    placement: Placement  # edges of the new nodes
    best: Found  # the most harmful features so far

    @property
    def right(self) -> float:
        """Share of the targets, in 0..1, that are correctly classified at its best features."""
        return self.best.right / self.num_targets


@validated("attacks.{self.name}")
class AutoInjection(Ensemble):
    """An ensemble of injection attacks: the most harmful graph that any part finds.

    Only the budget has to be set. The parts run in this order:

    - If there are at most two edges per correctly classified target, `Cover` places each edge
      where it misclassifies most targets. It runs through each form of the model, or without
      gradients if no form has any.
    - If there is at least one edge per five such targets, a search without gradients and gradient
      ascents follow, each with its own edges and loss. Their edges only lead to correctly
      classified targets: one edge per target, four, or all that the budget allows, the latter with
      and without links among the new nodes.
    - After each rung of steps, the less harmful ascents are dropped (successive halving); the
      others continue from their best features.
    - The best part of each edge distribution, and the next best part, continue as long as they
      gain. They move edges away from targets that stay misclassified without them, to where
      gradients and measured gains are largest.

    The attack stops once every target is misclassified. `PerturbedGraph.part_accuracy` records the
    accuracy of every part. A part whose gradient is missing or not finite is dropped with a warning
    in the log.

    Reference: in the manner of AutoAttack, Croce and Hein 2020, arXiv:2003.01690, with successive
    halving, Jamieson and Talwalkar 2016, arXiv:1502.07943.

    Args:
        num_steps: Gradient steps, at least 0. The longest parts take a third of this number before
            edges move, and up to eleven twelfths of it in each round after that.

    Examples:
        >>> from robust_diffusion import Budget, attack
        >>> from robust_diffusion.attacks import AutoInjection
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = GCN(8, 8, out_channels=7)
        >>> graph = attack(model, data, Budget(2, 3), AutoInjection(num_steps=2))
        >>> graph.to_data().num_nodes
        102
    """

    name = "auto"
    version = 10
    kind: ClassVar[Kind] = "injection"

    def __init__(self, *, num_steps: Steps = 120) -> None:
        self.num_steps = num_steps

    def has_budget(self, task: Task, budget: Budget) -> bool:
        """Return whether a node may be injected."""
        return budget.max_injected_nodes > 0

    def expected_passes(self, budget: Budget, num_targets: int) -> int | None:
        """See `Attack`; a cover tries an edge at every target, and few edges move for long."""
        edges = sum(budget.injected_degrees) / num_targets
        per_step = 8.0
        if edges <= COVERED:
            per_step += num_targets / 60 + (28 if edges >= ASCENDED else 0)
        return round(per_step * self.num_steps) or None

    def run_parts(self, parts: Parts) -> None:
        """Run covers if there are few edges; if there are more, ascents and then reallocations."""
        edges = sum(parts.budget.injected_degrees)
        right = parts.task.right(parts.judge.clean_logits)
        left = []
        if 0 < edges <= COVERED * right:
            left = [climb for form in parts.forms if (climb := self._cover(parts, form))]
            if not left:
                self._cover(parts, "search")
        if 0 < edges < ASCENDED * right:
            return
        placements = list(_placements(parts))
        for words, sharing, placement in placements:
            if sharing == "apart" and words in SEARCHED and parts.lowest > 0:
                self._search(parts, f"{sharing}{words}", placement)
        climbs = [climb for name in parts.forms for climb in _climbs(parts, name, placements)]
        for share, count in RUNGS:
            climbs = self._rung(parts, _best(climbs, count * len(parts.forms)), share)
        left = _best_of_each_sharing([*climbs, *left], 1.0 if left else BEHIND)
        idle = 0
        for _ in range(MOST_ROUNDS if self.num_steps else 0):
            before = parts.lowest
            left = self._rung(parts, _best(left, len(left)), LAST_SHARE, REALLOCATIONS)
            idle = 0 if parts.lowest < before else idle + 1
            if not left or idle == (1 if parts.lowest < ENOUGH else IDLE_ROUNDS):
                break

    def _cover(self, parts: Parts, form: str) -> Climb | None:
        """Place edges by what they misclassify; `None` if there is no gradient to continue with."""
        if parts.lowest == 0:
            return None
        judge, task = parts.judge, parts.task
        victim, steps = (judge, 0) if form == "search" else (parts.forms[form], self.num_steps)
        exchanges = round(EXCHANGE_SHARE * self.num_steps)
        degrees, allowed = parts.budget.injected_degrees, feature_set(parts.budget)
        cover = Cover(victim, judge, task, degrees, allowed, steps, exchanges, parts.generator)
        none = torch.zeros(len(degrees), task.targets.numel(), dtype=torch.bool)
        capacity = torch.tensor(degrees, device=judge.device)
        name, empty = f"{form}: cover", replace(cover.placement(none), capacity=capacity)
        fitted = _run(parts, name, victim, empty, cover.run)
        if fitted is None or fitted[1].is_flat:
            return None
        count, rule = task.targets.numel(), StepRule(loss="tanh_margin")
        return Climb(name, victim, count, "cover", rule, *fitted)

    def _search(self, parts: Parts, words: str, placement: Placement) -> None:
        allowed = feature_set(parts.budget)
        search = _Search(parts.judge, parts.task, placement, allowed, parts.generator)
        count = round(SEARCH_SHARE * self.num_steps)
        _run(
            parts,
            f"search: {words}",
            parts.judge,
            placement,
            lambda: (placement, search.run(count)),
        )

    def _rung(
        self, parts: Parts, climbs: Sequence[Climb], share: float, reallocations: int = 0
    ) -> list[Climb]:
        """Take some more steps of each ascent; return the ascents that can continue."""
        able: list[Climb] = []
        task, allowed = parts.task, feature_set(parts.budget)
        for now in climbs:
            if parts.lowest == 0:
                return []
            if able and able[-1].right < ENOUGH:
                break

            def compute(now: Climb = now) -> tuple[Placement, Found]:
                victim, placement, steps = now.form, now.placement, now.steps
                rows, edges = victim.with_rows, placement.edges(task.edge_index)
                start, count = now.best.features, round(share * self.num_steps)
                best = climb(victim, task, rows, edges, start, steps, allowed, count)
                refit = round(REFIT_SHARE * self.num_steps)
                moves = placement, best, steps, allowed, reallocations, refit, parts.generator
                return reallocate(victim, task, *moves)

            after = _run(parts, now.name, now.form, now.placement, compute)
            if after is not None and not after[1].is_flat:
                able.append(replace(now, placement=after[0], best=after[1]))
        return able


def _placements(parts: Parts) -> Iterator[tuple[str, SharingName, Placement]]:
    """Yield edges of the new nodes, for every spending of the budget (in words) and sharing."""
    judge, task, generator, budget = parts.judge, parts.task, parts.generator, parts.budget
    right = judge.clean_logits[task.targets].argmax(1) == task.labels
    # If no target is correctly classified, there is nothing to gain, and all targets are used.
    open_ = replace(task, targets=task.targets[right] if right.any() else task.targets)
    full = budget.injected_degrees
    num_links = min(round(LINKED * full[-1]), len(full) - 1) // 2 * 2
    for edges_per_target, is_linked in SPENDINGS:
        links = num_links if is_linked else 0
        capacity = degrees = [degree - links for degree in full]
        if is_linked and not links:
            continue
        if edges_per_target is not None:
            total = edges_per_target * open_.targets.numel()
            if total >= sum(capacity):
                continue
            fewer = replace(budget, max_injected_edges=total).injected_degrees
            degrees = [min(most, few) for most, few in zip(capacity, fewer, strict=True)]
        words = _words(edges_per_target) + (", linked" if is_linked else "")
        for name in _EDGES:
            rows = SHARINGS[name](judge, open_, (task.x, task.edge_index), degrees, generator)
            yield words, name, Placement.of(task, rows, capacity, links)


def _words(edges_per_target: int | None) -> str:
    if edges_per_target is None:
        return ""
    return ", an edge a target" if edges_per_target == 1 else f", {edges_per_target} edges a target"


def _climbs(
    parts: Parts, name: str, placements: Sequence[tuple[str, SharingName, Placement]]
) -> Iterator[Climb]:
    """Yield the ascents through the named form of the model, before their first step."""
    form, task = parts.forms[name], parts.task
    num_targets = task.targets.numel()
    for words, edges, placement in placements:
        start = STARTS["real"](form, task, placement.rows, parts.budget, parts.generator)
        for loss in _LOSSES:
            initial, rule = Found(start, num_targets, 0.0), StepRule(loss=loss)
            title = f"{name}: {edges}, {loss}{words}"
            yield Climb(title, form, num_targets, edges, rule, placement, initial)


def _best(climbs: Sequence[Climb], count: int) -> list[Climb]:
    return sorted(climbs, key=lambda climb: climb.best.right)[:count]


def _best_of_each_sharing(climbs: Sequence[Climb], behind: float) -> list[Climb]:
    """Return the best ascent of every edge distribution, and the next best of all.

    An obstacle to one distribution need not stop the others. Ascents whose accuracy exceeds the
    best one by more than `behind`, in 0..1, are left out.
    """
    order = _best(climbs, len(climbs))
    sharings = (*_EDGES, "cover")
    first = [next((one for one in order if one.edges == edges), None) for edges in sharings]
    best = [*filter(None, first), *[one for one in order if one not in first][:1]]
    return [one for one in best if one.right - order[0].right <= behind]


def _run(
    parts: Parts,
    name: str,
    form: Victim,
    placement: Placement,
    compute: Callable[[], tuple[Placement, Found]],
) -> tuple[Placement, Found] | None:
    """Run a part and return its edges and features; `None` if it was dropped."""

    def packed() -> Artifact:
        placement, best = compute()
        return best.packed(chosen=placement.chosen)

    def placed(artifact: Artifact) -> Placement:
        return replace(placement, chosen=artifact.tensors["chosen"])

    def graph(artifact: Artifact) -> FeaturesAndEdges:
        edges = placed(artifact).edges(parts.task.edge_index)
        return torch.cat([parts.task.x, artifact.tensors["features"]]), edges

    artifact = parts.run(name, form, packed, graph)
    return None if artifact is None else (placed(artifact), Found.unpacked(artifact))


@dataclass(eq=False)
class _Search:
    """An evolutionary search in which each injected node is selected by its own targets.

    Every node first tries each class as its goal. Its features are at the limits, along the
    difference between the mean features of that class and of its targets' most frequent class (both
    by the model's predictions). The node keeps the goal that harms its own targets most. After
    that, all nodes mutate at once in each forward pass, and each keeps its mutation if it harms its
    own targets more. If a gradient attack does less harm than this search, the model hides its
    gradients.

    Reference: in the manner of the evolutionary attack EvA, arXiv:2507.08212, for injected nodes.
    """

    victim: Victim  # the attacked model
    task: Task  # what the attacker knows
    placement: Placement  # edges of the injected nodes
    allowed: FeatureSet  # of injected nodes
    generator: torch.Generator  # CPU generator

    def __post_init__(self) -> None:
        """Place the edges."""
        self.edges = self.placement.edges(self.task.edge_index)
        self.chosen = self.placement.chosen.to(self.task.x.dtype)
        # Less harmful than any candidate.
        self.best = Found(self.task.x[:0], self.task.targets.numel() + 1, 0.0)

    def run(self, num_steps: int) -> Found:
        """Return the most harmful features of all goals and mutations, at most two passes each."""
        goals = list(self.goals())
        harm = torch.stack([self.harm(goal) for goal in goals])
        nodes = torch.arange(self.chosen.size(0), device=harm.device)
        x = torch.stack(goals)[harm.argmax(0), nodes]
        reached = self.harm(x)
        for _ in range(num_steps):
            if self.best.right == 0:
                break
            mutated = self.mutated(x)
            better = self.harm(mutated) > reached
            if better.any():
                candidate = torch.where(better[:, None], mutated, x)
                harm = self.harm(candidate)
                # Nodes that share targets can cancel each other's gain.
                if harm.sum() > reached.sum():
                    x, reached = candidate, harm
        return self.best

    def harm(self, new: Float[Tensor, "k f"]) -> Float[Tensor, " k"]:
        """Return the bounded margin loss summed over each node's own targets."""
        labels = self.task.labels
        with torch.no_grad():
            logits = self.victim(self.victim.with_rows(new), self.edges)[self.task.targets]
        loss = tanh_margin(logits, labels)
        right = int((logits.argmax(1) == labels).sum())
        candidate = Found(new, right, loss.mean().item())
        if candidate.rank < self.best.rank:
            self.best = candidate
        return self.chosen @ loss

    def goals(self) -> Iterator[Float[Tensor, "k f"]]:
        """Yield features that drive each node's targets to another class, class by class."""
        x = self.task.x
        predicted, labels = self.victim.clean_logits.argmax(1), self.task.labels
        num_classes = self.victim.clean_logits.size(1)
        means = torch.stack(
            [
                x[predicted == c].mean(0) if (predicted == c).any() else x.mean(0)
                for c in range(num_classes)
            ]
        )
        counts = self.chosen @ torch.nn.functional.one_hot(labels, num_classes).to(x.dtype)
        source = means[counts.argmax(1)]
        for mean in means:
            yield self.allowed.extreme(mean - source)

    def mutated(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Mutate each node: mirror some features between the limits, or cross with another node."""
        (k, f), allowed = x.shape, self.allowed
        flipped = self._drawn(k, f) < MUTATION * self._drawn(k, 1) * allowed.odds(x)
        mirrored = torch.where(flipped, allowed.low + allowed.high - x, x)
        crossed = (self._drawn(k, 1) < CROSSED) & (self._drawn(k, f) < 1 / 2)
        return allowed.nearest(torch.where(crossed, x[self._permutation(k)], mirrored))

    def _drawn(self, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float32)
        return drawn.to(self.task.x)

    def _permutation(self, k: int) -> Int[Tensor, " k"]:
        return torch.randperm(k, generator=self.generator).to(self.task.x.device)
