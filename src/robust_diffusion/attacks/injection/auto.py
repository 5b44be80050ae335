"""`auto` for injections: an ensemble that estimates the worst case."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Generator, Tensor

from robust_diffusion.attacks.base import Kind, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.ensemble import Ensemble, Parts
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.attacks.gradient_ascent import StepRule
from robust_diffusion.attacks.injection.annealing import Exchange, differences, directions
from robust_diffusion.attacks.injection.base import STARTS, draw_targets
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.cover import Cover, passes_of_a_reading, positions
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS, SharingName
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Climb, Injection, Part
from robust_diffusion.attacks.injection.search import Search
from robust_diffusion.attacks.losses import LossName, margins
from robust_diffusion.checks import Steps, validated
from robust_diffusion.operators.propagation import Propagator

_EDGES: tuple[SharingName, ...] = ("equal", "apart")
_LOSSES: tuple[LossName, ...] = ("logit", "masked")

Spending = tuple[int | None, bool]
"""Edges per target (`None` for all), and whether some of a node's edges lead to other new nodes."""
Beginning = tuple[Spending, SharingName, Placement]
"""Edges of the new nodes, and how they came about."""
Track = tuple[Climb, Injection]
"""An ascent, and the most harmful injection that it has reached."""


@validated("attacks.{self.name}")
class AutoInjection(Ensemble):
    """An ensemble of injection attacks: the most harmful graph that any part finds.

    Only the budget has to be set. The parts run in this order:

    - If there are at most two edges per correctly classified target, `Cover` places each edge
      where it misclassifies most targets. It runs through each form of the model, or without
      gradients if no form has any. With at least one edge per five such targets, it is skipped on
      more than 4,096 of them.
    - If there is at least one edge per five such targets, a search without gradients and gradient
      ascents follow, each with its own edges and loss. Their edges only lead to correctly
      classified targets: one edge per target, four, or all that the budget allows, the latter with
      and without links among the new nodes.
    - After each rung of steps, the less harmful ascents are dropped (successive halving); the
      others continue from their best features.
    - The best part of each edge distribution, and the next best part, continue as long as they
      gain. They move edges away from targets that stay misclassified without them, to where
      gradients and measured gains are largest.
    - At the end single edges are exchanged, judged on the whole graph with annealed acceptance
      (`Exchange`): in many chains of steps if the model propagates predictions that C++ can
      evaluate quickly, and in a few from the best graph otherwise. The features mutate, too, unless
      the model has an exact gradient in edge weights. Attention has none at absent edges.

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
    version = 11
    kind: ClassVar[Kind] = "injection"

    def __init__(self, *, num_steps: Steps = 120) -> None:
        self.num_steps = num_steps

    def has_budget(self, task: Task, budget: Budget) -> bool:
        """Return whether a node may be injected."""
        return budget.max_injected_nodes > 0

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """See `Attack`; fewer if every target is misclassified before the end."""
        steps, logits = self.num_steps, victim.clean_logits
        if not steps:
            return None
        classes, right = logits.size(1), task.right(logits)
        edges = sum(budget.within(task.targets.numel()).injected_degrees)
        is_covered, is_ascended = _strategies(edges, right)
        expected = 0.0
        reads_edges = victim.reads_edges
        if is_covered:  # readings of each class, then fits and exchanges
            passes = passes_of_a_reading(
                task, positions(margins(logits[task.targets], task.labels) <= 0)
            )
            once = classes * (passes + 1 + steps / 6) + steps / 6 * (2 * passes + 2 + steps / 12)
            expected += once if reads_edges else 2 * once  # again without gradients
        if is_ascended:  # searches try each class, and every start is judged
            expected += 2 * (classes + 1) + steps / 2 + 32
        if is_ascended and reads_edges:
            # The fewer the edges, the longer they move.
            moves = 16 if edges <= AUTO.covered * right else 2 * (edges <= AUTO.ample * right)
            expected += 2 * steps + 26 + moves * (0.9 * steps + 74)
        if edges <= AUTO.covered * right and self._is_exchanged(budget, task):
            is_fast = victim.propagator(task.targets) is not None
            chain = (AUTO.fast if is_fast else AUTO.slow).per_step * steps
            expected += (AUTO.chains + 1 if is_fast else 1) * chain
        return round(expected)

    def _is_exchanged(self, budget: Budget, task: Task) -> bool:
        """Return whether single edges are exchanged; of many, they make no difference."""
        return budget.max_injected_nodes * task.targets.numel() <= AUTO.most_slopes

    def run_parts(self, parts: Parts) -> None:
        """Run covers if there are few edges; with more, ascents; then exchange single edges."""
        features = self._placed(parts)
        if parts.lowest > 0 and self.num_steps:
            self._exchanged(parts, features)

    def _placed(self, parts: Parts) -> list[Tensor]:
        """Run all parts but exchanges; return the features of the ascents."""
        edges = sum(parts.budget.injected_degrees)
        right = parts.task.right(parts.judge.clean_logits)
        is_covered, is_ascended = _strategies(edges, right)
        covers = self._covers(parts) if is_covered else []
        if not is_ascended:
            return [best.found.features for _, best in covers]
        starts = list(_starts(parts))
        for spending, sharing, placement in starts:
            if sharing == "apart" and spending in AUTO.searched:
                part = Search(*self._bound(parts, "search", sharing + _words(spending)))
                _improved(parts, part, Injection.at(parts.task, placement, parts.task.x[:0]))
        tracks = [track for form in parts.forms for track in self._ascents(parts, form, starts)]
        for share, count in AUTO.rungs:
            best = _best(tracks, count * len(parts.forms))
            tracks = _continued(parts, [(replace(part, share=share), now) for part, now in best])
        features = [best.found.features for _, best in [*tracks, *covers]]
        tracks = _best_of_each_sharing([*tracks, *covers], 1.0 if covers else AUTO.behind)
        share, moves, idle = AUTO.last_share, AUTO.moves_per_round, 0
        tracks = [(replace(part, share=share, moves=moves), best) for part, best in tracks]
        for _ in range(AUTO.most_rounds if self.num_steps else 0):
            before = parts.lowest
            tracks = _continued(parts, _best(tracks, len(tracks)))
            idle = 0 if before - parts.lowest > AUTO.least_gain else idle + 1
            if not tracks or idle == AUTO.idle_rounds:
                break
        return features

    def _exchanged(self, parts: Parts, features: Sequence[Tensor]) -> None:
        """Exchange single edges on the whole graph.

        A model that propagates predictions is evaluated in C++, so chains also start from random
        edges or from nodes that oppose each other. Of other models, only the best graph is
        improved.
        """
        form, task, budget = parts.last_form, parts.task, parts.budget
        if not self._is_exchanged(budget, task):
            return
        bound = self._bound(parts, form, "exchange")
        fast, least_gain = parts.judge.propagator(task.targets), AUTO.least_gain
        if fast is not None:
            vectors = directions(fast, task.x, feature_set(budget), parts.generator)
            exchange = Exchange(*bound, vectors, AUTO.fast, fast)
            for start in _exchange_starts(parts, exchange, fast):
                _improved(parts, exchange, start)
            exchange = replace(exchange, schedule=AUTO.cooler)
        else:
            vectors = torch.cat([*features, differences(parts.judge, feature_set(budget))])
            exchange = Exchange(*bound, vectors, AUTO.blind)
            if parts.judge.edge_gradient == "exact" and features:
                exchange, least_gain = replace(exchange, schedule=AUTO.slow), AUTO.longer_gain
        for _ in range(AUTO.most_exchanges):
            before = parts.lowest
            if before < AUTO.enough or (graph := parts.graph) is None:
                break
            _improved(parts, exchange, Injection.of_graph(task, budget, graph))
            if before - parts.lowest <= least_gain:
                break
            if fast is None:
                longer = 2 * exchange.schedule.per_step
                exchange = replace(exchange, schedule=replace(exchange.schedule, per_step=longer))

    def _covers(self, parts: Parts) -> list[Track]:
        """Run a cover through each form of the model, or without gradients if none has any."""
        empty, tracks = Injection.empty(parts.task, parts.budget), []
        for form in parts.forms:
            bound = self._bound(parts, form, "cover")
            best = _improved(parts, Cover(*bound), empty)
            if best is not None:
                tracks.append((Climb(*bound, "cover", StepRule(loss="tanh_margin")), best))
        if not tracks:
            _improved(
                parts, Cover(*self._bound(parts, "search", "cover"), has_gradient=False), empty
            )
        return tracks

    def _ascents(self, parts: Parts, form: str, starts: Sequence[Beginning]) -> Iterator[Track]:
        """Yield the ascents through the named form of the model, before their first step."""
        for spending, sharing, placement in starts:
            rows, budget = placement.rows, parts.budget
            x = STARTS["real"](parts.forms[form], parts.task, rows, budget, parts.generator)
            for loss in _LOSSES:
                bound = self._bound(parts, form, f"{sharing}, {loss}{_words(spending)}")
                first = Injection.at(parts.task, placement, x)
                yield Climb(*bound, sharing, StepRule(loss=loss)), first

    def _bound(
        self, parts: Parts, form: str, words: str
    ) -> tuple[str, Victim, Victim, Task, Budget, int, Generator]:
        """Return the fields of a `Part` through a form of the model, or without gradients."""
        victim, task, budget = parts.forms.get(form, parts.judge), parts.task, parts.budget
        return (
            f"{form}: {words}",
            victim,
            parts.judge,
            task,
            budget,
            self.num_steps,
            parts.generator,
        )


def _strategies(edges: int, right: int) -> tuple[bool, bool]:
    """Return whether covers and whether ascents run, with these edges and correct targets."""
    is_scarce = 0 < edges < AUTO.ascended * right
    is_fast = is_scarce or right <= AUTO.most_covered
    return is_fast and 0 < edges <= AUTO.covered * right, not is_scarce


def _exchange_starts(parts: Parts, exchange: Exchange, fast: Propagator) -> Iterator[Injection]:
    """Yield the best graph so far, or nodes that oppose each other; then random edges."""
    task, budget, generator = parts.task, parts.budget, parts.generator
    degrees, vectors = budget.injected_degrees, exchange.vectors
    starts: list[Injection] = []
    most = round(AUTO.ample * parts.task.right(parts.judge.clean_logits))
    if sum(degrees) > most:
        degrees = replace(budget, max_injected_edges=most).injected_degrees
        starts = exchange.opposed(fast)
    if not starts and (graph := parts.graph) is not None:
        starts = [Injection.of_graph(task, budget, graph)]
    yield from starts
    for _ in range(max(1, AUTO.chains - len(starts))):
        rows = draw_targets(task.targets, degrees, generator)
        placement = Placement.of(task, rows, budget.injected_degrees, 0)
        drawn = torch.randint(len(vectors), (len(rows),), generator=generator)
        yield Injection.at(task, placement, vectors[drawn.to(vectors.device)])


def _improved(parts: Parts, part: Part, best: Injection) -> Injection | None:
    """Run a part; return `None` if there is nothing left to gain, or its gradient is of no use."""
    if parts.lowest == 0:
        return None
    artifact = parts.run(
        part.name,
        part.victim,
        lambda: part.improve(best).packed(),
        lambda packed: best.unpacked(packed).graph(parts.task),
    )
    after = None if artifact is None else best.unpacked(artifact)
    return None if after is None or after.found.is_flat else after


def _continued(parts: Parts, tracks: Sequence[Track]) -> list[Track]:
    """Continue each ascent; return those that can go on."""
    able: list[Track] = []
    for part, best in tracks:
        if able and _accuracy(able[-1]) < AUTO.enough:
            break
        after = _improved(parts, part, best)
        if after is not None:
            able.append((part, after))
    return able


def _starts(parts: Parts) -> Iterator[Beginning]:
    """Yield edges of the new nodes, for every spending of the budget and sharing."""
    judge, task, generator, budget = parts.judge, parts.task, parts.generator, parts.budget
    right = judge.clean_logits[task.targets].argmax(1) == task.labels
    # If no target is correctly classified, there is nothing to gain, and all targets are used.
    open_ = replace(task, targets=task.targets[right] if right.any() else task.targets)
    full = budget.injected_degrees
    num_links = min(round(AUTO.linked * full[-1]), len(full) - 1) // 2 * 2
    for edges_per_target, is_linked in AUTO.spendings:
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
        for name in _EDGES:
            rows = SHARINGS[name](judge, open_, (task.x, task.edge_index), degrees, generator)
            placement = Placement.of(task, rows, capacity, links)
            yield (edges_per_target, is_linked), name, placement


def _words(spending: Spending) -> str:
    """Describe a spending as an ending of a part's name."""
    per_target, is_linked = spending
    number = {None: "", 1: ", an edge a target"}
    words = number.get(per_target, f", {per_target} edges a target")
    return words + (", linked" if is_linked else "")


def _best(tracks: Sequence[Track], count: int) -> list[Track]:
    return sorted(tracks, key=_accuracy)[:count]


def _accuracy(track: Track) -> float:
    """Return the share of the targets, in 0..1, that are correctly classified."""
    part, best = track
    return best.found.right / part.task.targets.numel()


def _best_of_each_sharing(tracks: Sequence[Track], behind: float) -> list[Track]:
    """Return the best ascent of every edge distribution, and the next best of all.

    An obstacle to one distribution need not stop the others. Ascents whose accuracy exceeds the
    best one by more than `behind`, in 0..1, are left out.
    """
    order = _best(tracks, len(tracks))
    sharings = (*_EDGES, "cover")
    first = [next((one for one in order if one[0].edges == edges), None) for edges in sharings]
    best = [*filter(None, first), *[one for one in order if one not in first][:1]]
    return [one for one in best if _accuracy(one) - _accuracy(order[0]) <= behind]
