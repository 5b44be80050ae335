"""Edges of injected nodes, and how they move to the targets that they decide."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from robust_diffusion.attacks.base import Problem
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.gradient_ascent import Found, StepRule, climb
from robust_diffusion.attacks.injection.base import connect
from robust_diffusion.attacks.losses import margins
from robust_diffusion.errors import RobustDiffusionError

MOST_TRIMMED = 8
"""Most edges that a lost target gives up in one reallocation."""

MOST_PASSES = 10
"""Most passes in which one edge more is tried at each target."""

MOST_SLOPES = 2**20
"""Most possible edges whose gradient is taken at a time."""

NEARER = 0.1
"""Worth of one unit of a target's tanh margin, if a target that becomes lost is worth 1."""

NEAR, PATIENCE = 0.01, 3
"""Share of the targets by which a round may be worse than the last and still be walked on from, and
tries without a gain after which the walk goes back to the best."""

MOVES = ((True, True), (False, False), (False, True), (True, False))
"""Kinds of moves of edges: whether those at targets still right stay, and whether gradients say
what an edge gains. None is the best for all models and budgets."""

LEFT_OUT = (0.0, 0.3, 0.6, 0.15, 0.45, 0.8)
"""Share of the targets still right that get no edge, by the tries since the last gain."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Undirected edges of injected nodes."""

    chosen: Bool[Tensor, "k t"]  # true where an injected node has an edge to a target
    targets: Int[Tensor, " t"]  # the targets' numbers
    links: Int[Tensor, "2 l"]  # edges among injected nodes, each once, numbered from 0 as these are
    # Most edges of each injected node to targets; its links are not among them.
    capacity: Int[Tensor, " k"]
    first: int  # number of the first injected node

    @classmethod
    def of(
        cls, problem: Problem, rows: Sequence[Tensor], capacity: Sequence[int], num_links: int
    ) -> "Placement":
        """Edges to the targets in `rows`, and links to an even number of neighbours on a ring."""
        targets = problem.targets
        chosen = torch.stack([torch.isin(targets, row) for row in rows])
        k = torch.arange(len(rows), device=targets.device)
        ring = [torch.stack([k, (k + i) % len(rows)]) for i in range(1, num_links // 2 + 1)]
        links = torch.cat([targets.new_empty(2, 0), *ring], 1)
        room = torch.tensor(capacity, device=targets.device)
        return cls(chosen, targets, links, room, problem.x.size(0))

    @property
    def rows(self) -> list[Int[Tensor, "_"]]:
        """Targets of each injected node."""
        return [self.targets[row] for row in self.chosen]

    def edges(self, edge_index: Int[Tensor, "2 e"]) -> Int[Tensor, "2 e2"]:
        """The graph's edges, those to targets and the links, all in both directions."""
        links = self.links + self.first
        return torch.cat([connect(edge_index, self.rows, self.first), links, links.flip(0)], 1)

    def margins(self, problem: Problem, features: Float[Tensor, "k f"]) -> Float[Tensor, " t"]:
        """The targets' logit margins on the graph with these edges; above 0 means misclassified."""
        x = problem.fixed_rows.followed_by(features)
        with torch.no_grad():
            return margins(problem.logits(x, self.edges(problem.edge_index)), problem.labels)

    def trimmed(
        self, problem: Problem, features: Float[Tensor, "k f"], generator: torch.Generator
    ) -> "Placement":
        """Without the edges that lost targets do not need.

        Each lost target gives up an edge, all at once; where that brings a target back, its edges
        stay, and the others go on.
        """
        placement = self
        lost = self.margins(problem, features) > 0
        open_ = lost.clone()
        for _ in range(MOST_TRIMMED):
            giving = (open_ & placement.chosen.any(0)).nonzero()[:, 0]
            if giving.numel() == 0:
                break
            drawn = _drawn(placement.chosen.shape, generator).to(features.device)
            edge = drawn.masked_fill(~placement.chosen, -1).argmax(0)
            chosen = placement.chosen.clone()
            chosen[edge[giving], giving] = False
            back = lost & (replace(self, chosen=chosen).margins(problem, features) <= 0)
            chosen[:, back] = placement.chosen[:, back]
            open_ &= ~back
            placement = replace(self, chosen=chosen)
        return placement

    def gains(
        self,
        problem: Problem,
        features: Float[Tensor, "k f"],
        tried: Bool[Tensor, " t"],
        before: Float[Tensor, " t"],
    ) -> Float[Tensor, "k t"]:
        """What one edge more changes in a target's margin `before`; -inf where not tried.

        Each pass tries one node at every target, another one at each.
        """
        k, t = self.chosen.shape
        gains = before.new_full((k, t), -torch.inf)
        count = min(k, MOST_PASSES)
        places = torch.arange(t, device=before.device)
        for i in range(count):
            nodes = (places + i * k // count) % k
            new = tried & ~self.chosen[nodes, places]
            chosen = self.chosen.clone()
            chosen[nodes[new], places[new]] = True
            after = replace(self, chosen=chosen).margins(problem, features)
            gains[nodes[new], places[new]] = (after - before)[new]
        return gains

    def slopes(
        self, problem: Problem, features: Float[Tensor, "k f"]
    ) -> Float[Tensor, "k t"] | None:
        """Gradient of the sum of all targets' margins in the weight of each possible edge.

        An edge may harm other targets than the one at its end, which `gains` does not see. `None`
        if the model has no finite gradient in edge weights, its solver fails to find it, or there
        are too many possible edges. Nor is there any if edges of weight 0 change the logits, or a
        slope exceeds what the sum can change by: attention is singular where an edge is absent.
        """
        if self.chosen.numel() > MOST_SLOPES:
            return None
        weight = self.chosen.flatten().to(problem.x.dtype).requires_grad_()
        every, old = replace(self, chosen=torch.ones_like(self.chosen)), problem.edge_index
        linked = weight.new_ones(2 * self.links.size(1))
        weights = torch.cat([weight.new_ones(old.size(1)), weight, weight, linked])
        try:
            problem.check_edge_weights()
            if not problem.drops_edges_of_weight_0:
                return None
            logits = problem.logits(torch.cat([problem.x, features]), every.edges(old), weights)
            margin = margins(logits, problem.labels).tanh().sum()
            slopes = problem.slope(margin, weight, "edge weights").view_as(self.chosen)
            return slopes if slopes.abs().max() <= 2 * len(logits) else None
        except RobustDiffusionError:
            return None

    def allotted(
        self,
        problem: Problem,
        features: Float[Tensor, "k f"],
        left_out: float,
        generator: torch.Generator,
        *,
        keep: bool,
        by_slopes: bool,
    ) -> "Placement":
        """With more edges at the targets still right.

        Their present edges stay if `keep` says so; otherwise these are free as well. What one edge
        more gains is the gradient, if `by_slopes` says so and there is one, or else measured. Free
        edges are assigned to the targets, at most one to each, so that most are misclassified; then
        again to those that are not, as far as gains add up. A share of the targets, drawn at
        random, is `left_out`.
        """
        reached = self.margins(problem, features)
        right, free = reached <= 0, self
        if not keep:
            free = replace(self, chosen=self.chosen & ~right)
            reached = free.margins(problem, features)
        gains = free.slopes(problem, features) if by_slopes else None
        if gains is None:
            gains = free.gains(problem, features, right, reached)
        gains, chosen = gains.masked_fill(free.chosen | ~right, -torch.inf), free.chosen.clone()
        drawn = _drawn((right.numel(),), generator).to(features.device)
        open_ = right & (drawn >= left_out) & (reached <= 0)
        while (room := self.capacity - chosen.sum(1)).any() and open_.any():
            targets = open_.nonzero()[:, 0]
            nodes = torch.arange(len(room), device=room.device)
            slots = nodes.repeat_interleave(room.clamp_max(targets.numel()))
            after = reached[targets, None] + gains[slots][:, targets].T
            worth = (after > 0) + NEARER * (after.tanh() - reached[targets, None].tanh())
            # Not a number where a flow diverges on the tried graph.
            worth = worth.masked_fill(after.isneginf() | after.isnan(), -1)
            row, slot = linear_sum_assignment(worth.double().cpu().numpy(), maximize=True)
            row, slot = (torch.from_numpy(index).to(room.device) for index in (row, slot))
            useful = worth[row, slot] > 0
            row, slot = targets[row[useful]], slots[slot[useful]]
            chosen[slot, row] = True
            reached[row] += gains[slot, row]
            gains[slot, row] = -torch.inf
            served = torch.zeros_like(open_)
            served[row] = reached[row] <= 0
            open_ = served
        return replace(self, chosen=chosen)


def _drawn(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float32)


def reallocate(
    problem: Problem,
    placement: Placement,
    fitted: Found,
    steps: StepRule,
    allowed: FeatureSet,
    num_rounds: int,
    num_steps: int,
    generator: torch.Generator,
) -> tuple[Placement, Found]:
    """Move edges from lost targets to those nearest to being lost, round by round.

    A kind of move is repeated as long as it gains; then comes the next of `MOVES`. After each
    round the features are fitted again, by `tanh_margin` and by `masked`. A round that leaves more
    targets right than the best is walked on from if it is close, so that edges which are wrong
    together can change together.
    """
    best = now = (placement, fitted)
    tries = idle = 0
    for _ in range(num_rounds):
        if best[1].right == 0:
            break
        edges, features = now[0], now[1].features
        edges = edges.trimmed(problem, features, generator)
        left_out = LEFT_OUT[tries % len(LEFT_OUT)]
        keep, by_slopes = MOVES[idle % len(MOVES)]
        edges = edges.allotted(
            problem, features, left_out, generator, keep=keep, by_slopes=by_slopes
        )
        index = edges.edges(problem.edge_index)
        fits = [
            climb(
                problem, problem.fixed_rows.followed_by, index, features, rule, allowed, num_steps
            )
            for rule in (replace(steps, loss="tanh_margin"), replace(steps, loss="masked"))
        ]
        new = min(fits, key=lambda fit: fit.right)
        idle += new.right >= now[1].right
        tries = 0 if new.right < best[1].right else tries + 1
        if new.right < best[1].right:
            best = edges, new
        if new.right <= now[1].right + int(NEAR * problem.targets.numel()):
            now = edges, new
        elif tries % PATIENCE == 0:
            now = best
    return best
