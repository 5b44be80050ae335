"""Edges of injected nodes, and how they move to the targets that they decide."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.attacks.gradient_ascent import Found, StepRule, climb
from robust_diffusion.attacks.injection.base import connect
from robust_diffusion.attacks.injection.edges import MAX_CANDIDATES
from robust_diffusion.attacks.losses import margins
from robust_diffusion.attacks.problem import Problem, gradient
from robust_diffusion.errors import AttackError

MOST_TRIMMED = 8
"""Most edges that a lost target gives up in one reallocation."""

NEAR, PATIENCE = 0.01, 3
"""Share of the targets by which a round may be worse than the last and still be walked on from, and
tries without a gain after which the walk goes back to the best."""

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

    def gains(
        self, problem: Problem, features: Float[Tensor, "k f"], among: Bool[Tensor, "k t"]
    ) -> tuple[Float[Tensor, "k t"], Float[Tensor, " t"]]:
        """Gain of some possible edges in the sum of the targets' margins, and these margins.

        By the gradient with respect to the edge's weight, 1 if it is there and 0 if not. Of a model
        without weights, and of more than 2^20 edges: the share of the node's targets that are of
        the target's class. Edges that are not `among` these gain 0; all that are there are.
        """
        try:
            problem.check_edge_weights()
            has_weights = int(among.sum()) <= MAX_CANDIDATES
        except AttackError:
            has_weights = False
        if not has_weights:
            labels = problem.labels
            of_class = self.chosen.float() @ (labels[:, None] == labels).float()
            gains = of_class / self.chosen.sum(1, keepdim=True).clamp_min(1)
            return gains.to(problem.x.dtype), self.margins(problem, features)
        weight = self.chosen[among].to(problem.x.dtype).requires_grad_()
        every, old = replace(self, chosen=among), problem.edge_index
        linked = weight.new_ones(2 * self.links.size(1))
        weights = torch.cat([weight.new_ones(old.size(1)), weight, weight, linked])
        x = torch.cat([problem.x, features])
        margin = margins(problem.logits(x, every.edges(old), weights), problem.labels)
        slopes = gradient(margin.sum(), weight, attack=problem.attack, wrt="edge weights")
        gains = slopes.new_zeros(among.shape)
        gains[among] = slopes
        return gains, margin.detach()

    def margins(self, problem: Problem, features: Float[Tensor, "k f"]) -> Float[Tensor, " t"]:
        """The targets' logit margins on the graph with these edges; above 0 means misclassified."""
        x = problem.fixed_rows.followed_by(features)
        with torch.no_grad():
            return margins(problem.logits(x, self.edges(problem.edge_index)), problem.labels)

    def trimmed(self, problem: Problem, features: Float[Tensor, "k f"]) -> "Placement":
        """Without the edges that lost targets do not need.

        Each lost target gives up its least useful edge, all at once; where that brings a target
        back, its edges stay, and the others go on.
        """
        placement = self
        lost = self.margins(problem, features) > 0
        open_ = lost.clone()
        for _ in range(MOST_TRIMMED):
            giving = (open_ & placement.chosen.any(0)).nonzero()[:, 0]
            if giving.numel() == 0:
                break
            gains, _ = placement.gains(problem, features, placement.chosen)
            least = gains.masked_fill(~placement.chosen, torch.inf).argmin(0)
            chosen = placement.chosen.clone()
            chosen[least[giving], giving] = False
            back = lost & (replace(self, chosen=chosen).margins(problem, features) <= 0)
            chosen[:, back] = placement.chosen[:, back]
            open_ &= ~back
            placement = replace(self, chosen=chosen)
        return placement

    def allotted(
        self,
        problem: Problem,
        features: Float[Tensor, "k f"],
        left_out: float,
        generator: torch.Generator,
    ) -> "Placement":
        """With the edges of all targets still right placed again, by what each is seen to need.

        The gains tell how many edges a target needs to be lost. Those that need fewest come first;
        the rest goes round again. A share of the targets, drawn at random, is `left_out`.
        """
        gains, margin = self.gains(problem, features, torch.ones_like(self.chosen))
        right = (margin <= 0).nonzero()[:, 0]
        chosen = self.chosen.clone()
        without = margin - torch.where(chosen, gains, 0).sum(0)
        chosen[:, right] = False
        drawn = torch.rand(2, right.numel(), generator=generator, dtype=torch.float32).to(margin)
        stay, k = drawn[0] >= left_out, len(chosen)
        right, tie = right[stay], drawn[1][stay] / 2
        reached = without[right] + gains[:, right].sort(0, descending=True).values.cumsum(0)
        need = 1 + (reached > 0).int().argmax(0)
        need[(reached <= 0).all(0)] = k + 1
        order = (need + tie - without[right].clamp_max(0) / 10).argsort().tolist()
        room = self.capacity - chosen.sum(1)
        for count in (torch.where(need > k, 0, need).tolist(), [1] * right.numel()):
            for i in order:
                target, left = right[i], room > 0
                if not left.any():
                    break
                open_ = left & ~chosen[:, target]
                ranked = gains[:, target].masked_fill(~open_, -torch.inf).argsort(descending=True)
                nodes = ranked[: min(count[i], int(open_.sum()))]
                chosen[nodes, target] = True
                room[nodes] -= 1
        return replace(self, chosen=chosen)


def reallocate(
    problem: Problem,
    placement: Placement,
    fitted: Found,
    steps: StepRule,
    limits: tuple[float, float],
    num_rounds: int,
    num_steps: int,
    generator: torch.Generator,
) -> tuple[Placement, Found]:
    """Move edges from lost targets to those nearest to being lost, round by round.

    After each round the features are fitted again, by the given loss and by `tanh_margin`. A round
    that leaves more targets right than the best is walked on from if it is close, so that edges
    which are wrong together can change together.
    """
    best = now = (placement, fitted)
    tries = 0
    for _ in range(num_rounds):
        if best[1].right == 0:
            break
        edges, features = now[0], now[1].features
        edges = edges.trimmed(problem, features)
        edges = edges.allotted(problem, features, LEFT_OUT[tries % len(LEFT_OUT)], generator)
        index = edges.edges(problem.edge_index)
        fits = [
            climb(problem, problem.fixed_rows.followed_by, index, features, rule, limits, num_steps)
            for rule in (replace(steps, loss="tanh_margin"), replace(steps, loss="masked"))
        ]
        new = min(fits, key=lambda fit: fit.right)
        tries = 0 if new.right < best[1].right else tries + 1
        if new.right < best[1].right:
            best = edges, new
        if new.right <= now[1].right + int(NEAR * problem.targets.numel()):
            now = edges, new
        elif tries % PATIENCE == 0:
            now = best
    return best
