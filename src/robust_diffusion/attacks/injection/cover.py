"""Placement of injected edges by the targets that each of them misclassifies."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Task
from robust_diffusion.attacks.gradient_ascent import Found, StepRule, climb
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Injection, Part
from robust_diffusion.attacks.losses import margins
from robust_diffusion.attacks.regions import Regions, pack


@dataclass(frozen=True)
class Reading:
    """The measured effect of one more edge in the region of the target at its end."""

    lost: frozenset[int]  # positions of the targets that the edge misclassifies
    gain: float  # change of the summed tanh margins


_Readings = Mapping[int, Reading]
"""Position of the target at the end of the edge -> effect of the edge."""


@dataclass(frozen=True, eq=False)
class Cover(Part):
    """A greedy cover of the targets by few edges, each of which may misclassify several.

    Each class gets one feature vector, fitted to misclassify targets of other classes through one
    edge each. Passes over edges with disjoint regions then measure which targets each edge
    misclassifies. The nodes are selected one by one, each with the class and the ends that
    misclassify most targets not covered yet, and then reselected with all others in place. After
    that, all features are fitted together, and a few nodes of one class at a time reselect their
    ends on the graph with the others.

    Only the fits need a gradient. Every decision uses accuracies of the whole graph, so a model
    that carries features beyond the regions only costs passes.
    """

    has_gradient: bool = True  # whether features are fitted, or stay where they start

    def improve(self, best: Injection) -> Injection:
        """Place all edges from scratch, since a greedy cover has no use for a start."""
        judge, task = self.judge, self.task
        clean = margins(judge.clean_logits[task.targets], task.labels).cpu()
        around = around_targets(task)
        none = task.x[:0]
        start = self.placement(torch.zeros(0, task.targets.numel(), dtype=torch.bool))
        vectors = torch.cat([self._vector(i, clean) for i in range(judge.clean_logits.size(1))])
        readings = [self._read(vector, start, none, around) for vector in vectors]
        nodes = cover(readings, positions(clean > 0), self.degrees)
        placement = self.placement(self._chosen([ends for _, ends in nodes]))
        classes = torch.tensor([i for i, _ in nodes])
        fitted = self._fit(placement, vectors[classes.to(vectors.device)], AUTO.fit_share)
        return self._exchanged(Injection(placement, fitted), classes, vectors, around)

    @cached_property
    def degrees(self) -> list[int]:
        """Edges of each injected node."""
        return self.budget.injected_degrees

    def _share(self, share: float) -> int:
        """Return a number of gradient steps."""
        return round(share * self.steps) if self.has_gradient else 0

    def _vector(self, index: int, clean: Tensor) -> Float[Tensor, "1 f"]:
        """Fit features that move targets of other classes to this class, through one edge each."""
        judge, task = self.judge, self.task
        x, predicted = task.x, judge.clean_logits.argmax(1)
        others = ((clean <= 0) & (task.labels.cpu() != index)).nonzero()[:, 0]
        inside = predicted == index
        if not len(others) or not inside.any():
            return self.allowed.nearest(x.mean(0, keepdim=True))
        some = replace(task, targets=task.targets[others.to(x.device)])
        ahead = x[inside].mean(0) - x[some.targets].mean(0)
        start = self.allowed.extreme(ahead[None])
        nodes = self.placement(self._spread(others.tolist()))
        k = len(nodes.chosen)
        return climb(
            self.victim,
            some,
            lambda new: judge.with_rows(new.expand(k, -1)),
            nodes.edges(task.edge_index),
            start,
            StepRule(loss="tanh_margin"),
            self.allowed,
            self._share(AUTO.class_share),
        ).features

    def _read(
        self,
        vector: Float[Tensor, " f"],
        placement: Placement,
        features: Float[Tensor, "k f"],
        around: Sequence[frozenset[int]],
    ) -> _Readings:
        """Measure the effect of an edge from a node with these features, at each target."""
        before = self._margins(placement, features)
        right = positions(before <= 0)
        ends = [end for end, region in enumerate(around) if region & right]
        packs = pack([around[end] & right for end in ends], AUTO.most_ends)
        tries = [[ends[i] for i in members] for members in packs]
        reached = []
        for tried in tries:
            chosen = torch.cat([placement.chosen, self._spread(tried)])
            new = torch.cat([features, vector.expand(len(chosen) - len(features), -1)])
            changed = self.placement(chosen)
            reached.append(changed.device_margins(self.judge, self.task, new))
        readings = {}
        # Read together, to sync with a GPU once.
        for tried, after in zip(tries, torch.stack(reached).cpu() if reached else [], strict=True):
            change = (after.tanh() - before.tanh()).tolist()
            lost = positions(after > 0)
            for end in tried:
                region = around[end] & right
                readings[end] = Reading(region & lost, sum(change[i] for i in region))
        return readings

    def _exchanged(
        self,
        start: Injection,
        classes: Int[Tensor, " k"],
        vectors: Float[Tensor, "c f"],
        around: Sequence[frozenset[int]],
    ) -> Injection:
        """Let a few nodes reselect class and ends with the others in place, as long as that gains.

        The nodes belong to one class; the alternative is a class drawn at random.
        """
        placement, best = start.placement, start.found
        idle, drawn = 0, partial(torch.randperm, generator=self.generator)
        for _ in range(round(AUTO.exchange_share * self.steps)):
            if best.right == 0 or idle == AUTO.exchange_patience:
                break
            order = drawn(len(classes))
            current, alternative = int(classes[order[0]]), int(drawn(len(vectors))[0])
            group = order[classes[order] == current][: AUTO.group].sort().values
            outside = torch.ones_like(classes, dtype=torch.bool)
            outside[group] = False
            rest = self.placement(placement.chosen[outside])
            features = best.features[self.on_device(outside.nonzero()[:, 0])]
            mean = best.features[self.on_device(group)].mean(0, keepdim=True)
            options = [self.allowed.nearest(mean)[0], vectors[alternative]]
            readings = [self._read(vector, rest, features, around) for vector in options]
            covered = positions(self._margins(rest, features) > 0)
            nodes = cover(readings, covered, [self.degrees[i] for i in group.tolist()])
            chosen = placement.chosen.clone()
            chosen[group] = self._chosen([ends for _, ends in nodes])
            moved = group[torch.tensor([choice for choice, _ in nodes]) == 1]
            new = best.features.clone()
            new[self.on_device(moved)] = vectors[alternative]
            changed = self.placement(chosen)
            fitted = self._fit(changed, new, AUTO.refit_share, group)
            idle = 0 if fitted.right < best.right else idle + 1
            if fitted.rank < best.rank:
                placement, best = changed, fitted
                classes[moved] = alternative
        return Injection(placement, best)

    def _fit(
        self,
        placement: Placement,
        features: Float[Tensor, "k f"],
        share: float,
        group: Int[Tensor, " g"] | None = None,
    ) -> Found:
        """Fit the features of all nodes, or of a group, by some steps."""
        rows = self.on_device(torch.arange(len(features)) if group is None else group)

        def whole(new: Tensor) -> Tensor:
            return features.index_copy(0, rows, new)

        fitted = climb(
            self.victim,
            self.task,
            lambda new: self.judge.with_rows(whole(new)),
            placement.edges(self.task.edge_index),
            features[rows],
            StepRule(loss="tanh_margin"),
            self.allowed,
            self._share(share),
        )
        return replace(fitted, features=whole(fitted.features))

    def _margins(self, placement: Placement, features: Tensor) -> Float[Tensor, " t"]:
        if not len(features):
            return margins(self.judge.clean_logits[self.task.targets], self.task.labels).cpu()
        return placement.margins(self.judge, self.task, features)

    def placement(self, chosen: Bool[Tensor, "k t"]) -> Placement:
        """Return the placement of these edges, without links."""
        links = torch.empty(2, 0, dtype=torch.long)
        room = torch.full((len(chosen),), max(self.degrees))
        return Placement(chosen, self._targets, links, room, self.task.x.size(0))

    @cached_property
    def _targets(self) -> Int[Tensor, " t"]:
        return self.task.targets.cpu()

    def _spread(self, ends: Sequence[int]) -> Bool[Tensor, "k t"]:
        """Distribute one edge to each end over nodes with as many edges as an injected node has."""
        most = max(self.degrees)
        return self._chosen([ends[i : i + most] for i in range(0, len(ends), most)])

    def _chosen(self, rows: Sequence[Sequence[int]]) -> Bool[Tensor, "k t"]:
        chosen = torch.zeros(len(rows), self.task.targets.numel(), dtype=torch.bool)
        for row, ends in zip(chosen, rows, strict=True):
            row[list(ends)] = True
        return chosen


def around_targets(task: Task) -> list[frozenset[int]]:
    """Return the positions of the targets in the region of an edge at each target."""
    regions = Regions(task.edge_index, task.targets, task.x.size(0))
    return [regions.around([node], AUTO.hops) for node in task.targets.tolist()]


def passes_of_a_reading(task: Task, right: frozenset[int]) -> int:
    """Count the passes that try one edge at each target, if those of `right` can be lost."""
    regions = [region & right for region in around_targets(task)]
    return len(pack([region for region in regions if region], AUTO.most_ends))


def positions(mask: Bool[Tensor, " t"]) -> frozenset[int]:
    """Return the positions at which a mask is true."""
    return frozenset(mask.nonzero()[:, 0].tolist())


def cover(
    readings: Sequence[_Readings], covered: frozenset[int], degrees: Sequence[int]
) -> list[tuple[int, list[int]]]:
    """Select a vector and ends for each node, so that together they misclassify most targets.

    The nodes are selected one by one, and then reselected with all others in place as long as that
    gains.

    Args:
        readings: Effect of an edge at each end, for each feature vector of its node.
        covered: Targets that are misclassified without these nodes.
        degrees: Edges of each node.

    Returns:
        For each node, the index of its vector, and its ends.
    """
    nodes: list[tuple[int, list[int]]] = []

    def lost(without: int | None = None) -> frozenset[int]:
        others = (node for i, node in enumerate(nodes) if i != without)
        return covered.union(*(readings[v][end].lost for v, ends in others for end in ends))

    def choose(before: frozenset[int], degree: int) -> tuple[int, list[int]]:
        options = [(v, best_ends(reading, before, degree)) for v, reading in enumerate(readings)]
        return max(
            options, key=lambda o: len(before.union(*(readings[o[0]][e].lost for e in o[1])))
        )

    last = -1
    while (total := len(lost())) > last:
        last = total
        for i, degree in enumerate(degrees):
            nodes[i : i + 1] = [choose(lost(without=i), degree)]
    return nodes


def best_ends(reading: _Readings, covered: frozenset[int], degree: int) -> list[int]:
    """Select ends that misclassify most targets not covered yet (lazy greedy), ties by gain."""
    heap = [
        (-len(one.lost - covered), end in covered, -one.gain, end) for end, one in reading.items()
    ]
    heapq.heapify(heap)
    ends: list[int] = []
    while heap and len(ends) < degree:
        old, is_covered, gain, end = heapq.heappop(heap)
        now = -len(reading[end].lost - covered)
        if now > old:
            heapq.heappush(heap, (now, is_covered, gain, end))
            continue
        ends.append(end)
        covered |= reading[end].lost
    return ends
