"""Edges of injected nodes, and their reallocation to targets where they make a difference."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from robust_diffusion.attacks.base import Task, Victim, check_finite, gradient
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.losses import margins
from robust_diffusion.errors import RobustDiffusionError
from robust_diffusion.operators.graph import append_edges


@dataclass(frozen=True, eq=False)
class Placement:
    """Undirected edges of injected nodes, on the CPU.

    Edges are also selected there, so the only host syncs on a GPU are reads of margins and slopes.
    """

    chosen: Bool[Tensor, "k t"]  # true where an injected node has an edge to a target
    targets: Int[Tensor, " t"]  # the targets' numbers
    links: Int[Tensor, "2 l"]  # edges among injected nodes, each once; nodes are numbered from 0
    # Most edges of each injected node to targets, without its links.
    capacity: Int[Tensor, " k"]
    first: int  # number of the first injected node

    @classmethod
    def of(
        cls, task: Task, rows: Sequence[Tensor], capacity: Sequence[int], num_links: int
    ) -> "Placement":
        """Place edges to the targets in `rows`, and links to an even number of ring neighbours."""
        targets, sizes = task.targets.cpu(), [row.numel() for row in rows]
        ends = torch.split(torch.cat(list(rows)).cpu(), sizes)
        chosen = torch.stack([torch.isin(targets, row) for row in ends])
        k = torch.arange(len(rows))
        ring = [torch.stack([k, (k + i) % len(rows)]) for i in range(1, num_links // 2 + 1)]
        links = torch.cat([targets.new_empty(2, 0), *ring], 1)
        return cls(chosen, targets, links, torch.tensor(capacity), task.x.size(0))

    @classmethod
    def read(
        cls, task: Task, edge_index: Int[Tensor, "2 e"], degrees: Sequence[int]
    ) -> "Placement":
        """Read the injected nodes of an attacked graph; `degrees` are their most edges."""
        targets, n, edge_index = task.targets.cpu(), task.x.size(0), edge_index.cpu()
        src, dst = edge_index
        position = targets.new_full((n,), -1)
        position[targets] = torch.arange(len(targets))
        new, old = src >= n, dst < n
        chosen = torch.zeros(len(degrees), len(targets), dtype=torch.bool)
        chosen[src[new & old] - n, position[dst[new & old]]] = True
        links = edge_index[:, new & (src < dst)] - n
        room = torch.tensor(degrees)
        room -= torch.bincount(links.flatten(), minlength=len(degrees))
        return cls(chosen, targets, links, room, n)

    @property
    def _at_a_time(self) -> int:
        """Targets to which edges are assigned together, fewer if there are many possible edges."""
        if self.chosen.numel() <= AUTO.most_slopes:
            return max(1, len(self.targets))
        return max(1, AUTO.most_slopes // max(1, int(self.capacity.sum())))

    @property
    def rows(self) -> list[Int[Tensor, "_"]]:
        """Targets of each injected node."""
        return [self.targets[row] for row in self.chosen]

    def edges(self, edge_index: Int[Tensor, "2 e"]) -> Int[Tensor, "2 e2"]:
        """Return the graph's edges, those to targets and the links, all in both directions."""
        node, end = self.chosen.nonzero(as_tuple=True)
        new, links = torch.stack([node + self.first, self.targets[end]]), self.links + self.first
        new = torch.cat([new, new.flip(0), links, links.flip(0)], 1)
        return append_edges(edge_index, new.to(edge_index.device, non_blocking=True))

    def margins(
        self, victim: Victim, task: Task, features: Float[Tensor, "k f"]
    ) -> Float[Tensor, " t"]:
        """Read the targets' margins on the graph with these edges; misclassified if above 0."""
        return self.device_margins(victim, task, features).cpu()

    def device_margins(
        self, victim: Victim, task: Task, features: Float[Tensor, "k f"]
    ) -> Float[Tensor, " t"]:
        """Compute `margins` on the model's device, without waiting for them."""
        x = victim.with_rows(features)
        with torch.no_grad():
            return margins(victim(x, self.edges(task.edge_index))[task.targets], task.labels)

    def trimmed(
        self, victim: Victim, task: Task, features: Float[Tensor, "k f"], generator: torch.Generator
    ) -> "Placement":
        """Remove edges that misclassified targets do not need.

        All misclassified targets lose one edge at once. If a target becomes correctly classified,
        it gets its edge back and is skipped from then on; the others continue.
        """
        placement = self
        lost = self.margins(victim, task, features) > 0
        open_ = lost.clone()
        for _ in range(AUTO.most_trimmed):
            giving = (open_ & placement.chosen.any(0)).nonzero()[:, 0]
            if giving.numel() == 0:
                break
            drawn = _drawn(placement.chosen.shape, generator)
            edge = drawn.masked_fill(~placement.chosen, -1).argmax(0)
            chosen = placement.chosen.clone()
            chosen[edge[giving], giving] = False
            back = lost & (replace(self, chosen=chosen).margins(victim, task, features) <= 0)
            chosen[:, back] = placement.chosen[:, back]
            open_ &= ~back
            placement = replace(self, chosen=chosen)
        return placement

    def gains(
        self,
        victim: Victim,
        task: Task,
        features: Float[Tensor, "k f"],
        tried: Bool[Tensor, " t"],
        before: Float[Tensor, " t"],
    ) -> Float[Tensor, "k t"]:
        """Measure how one more edge changes a target's margin `before`; -inf where not tried.

        Each pass tries one new edge at every target, with nodes that vary over the targets.
        """
        k, t = self.chosen.shape
        gains, places = before.new_full((k, t), -torch.inf), torch.arange(t)
        count, edges, after = min(k, AUTO.most_passes), [], []
        for i in range(count):
            nodes = (places + i * k // count) % k
            new = tried & ~self.chosen[nodes, places]
            edges.append((nodes[new], places[new]))
            chosen = self.chosen.clone()
            chosen[edges[-1]] = True
            after.append(replace(self, chosen=chosen).device_margins(victim, task, features))
        # Read together, to sync with a GPU once.
        for (nodes, ends), reached in zip(edges, torch.stack(after).cpu(), strict=True):
            gains[nodes, ends] = (reached - before)[ends]
        return gains

    def slopes(
        self, victim: Victim, task: Task, features: Float[Tensor, "k f"], unit: float = 1.0
    ) -> Float[Tensor, "k t"] | None:
        """Compute the gradient of the summed tanh margins in the weight of each possible edge.

        Margins are divided by `unit` first.

        Unlike `gains`, it includes the effect of an edge on targets other than the one at its end.
        The result is `None` if the model has no finite gradient in edge weights, its solver fails,
        or there are too many possible edges. It is also `None` if edges of weight 0 change the
        logits, or if a slope exceeds the largest possible change of the sum, since attention is
        singular at absent edges.
        """
        if self.chosen.numel() > AUTO.most_slopes:
            return None
        weight = self.chosen.flatten().to(task.x, non_blocking=True).requires_grad_()
        every, old = replace(self, chosen=torch.ones_like(self.chosen)), task.edge_index
        linked = weight.new_ones(2 * self.links.size(1))
        weights = torch.cat([weight.new_ones(old.size(1)), weight, weight, linked])
        try:
            victim.check_edge_gradient()
            if victim.edge_gradient == "rough":
                return None
            x = victim.with_rows(features)
            logits = victim(x, every.edges(old), weights)[task.targets]
            margin = (margins(logits, task.labels) / unit).tanh().sum()
            slopes = gradient(margin, weight, "edge weights").cpu().view_as(self.chosen)
            check_finite(slopes.isfinite().all(), "edge weights")
            return slopes if slopes.abs().max() <= 2 * len(logits) else None
        except RobustDiffusionError:
            return None

    def allotted(
        self,
        victim: Victim,
        task: Task,
        features: Float[Tensor, "k f"],
        left_out: float,
        generator: torch.Generator,
        *,
        keep: bool,
        by_slopes: bool,
    ) -> "Placement":
        """Assign free edges to the correctly classified targets.

        If `keep` is true, the present edges of these targets stay; otherwise they are free as well.
        The gain of one more edge is its gradient if `by_slopes` is true and there is one, and is
        measured otherwise. Free edges are assigned to the targets, at most one to each, so that
        most of them become misclassified. Targets that do not are assigned another edge, adding up
        the gains, as long as edges are free. A random share `left_out` of the targets gets none.
        """
        reached = self.margins(victim, task, features)
        right, free = reached <= 0, self
        if not keep:
            free = replace(self, chosen=self.chosen & ~right)
            reached = free.margins(victim, task, features)
        gains = free.slopes(victim, task, features) if by_slopes else None
        if gains is None:
            gains = free.gains(victim, task, features, right, reached)
        gains, chosen = gains.masked_fill(free.chosen | ~right, -torch.inf), free.chosen.clone()
        drawn = _drawn((right.numel(),), generator)
        open_ = right & (drawn >= left_out) & (reached <= 0)
        while (self.capacity > chosen.sum(1)).any() and open_.any():
            served = torch.zeros_like(open_)
            for targets in torch.split(open_.nonzero()[:, 0], self._at_a_time):
                room = self.capacity - chosen.sum(1)
                nodes, row = _assigned(gains[:, targets], reached[targets], room)
                row = targets[row]
                chosen[nodes, row] = True
                reached[row] += gains[nodes, row]
                gains[nodes, row] = -torch.inf
                served[row] = reached[row] <= 0
            open_ = served
        return replace(self, chosen=chosen)


def _assigned(
    gains: Float[Tensor, "k t"], reached: Float[Tensor, " t"], room: Int[Tensor, " k"]
) -> tuple[Int[Tensor, " a"], Int[Tensor, " a"]]:
    """Assign free edges to targets, at most one each; return pairs of a node and a target."""
    nodes = torch.arange(len(room))
    slots = nodes.repeat_interleave(room.clamp_max(reached.numel()))
    after = reached[:, None] + gains[slots].T
    worth = (after > 0) + AUTO.nearer * (after.tanh() - reached[:, None].tanh())
    # NaN if a flow diverges on the graph with this edge.
    worth = worth.masked_fill(after.isneginf() | after.isnan(), -1)
    row, slot = linear_sum_assignment(worth.double().numpy(), maximize=True)
    row, slot = (torch.from_numpy(index) for index in (row, slot))
    useful = worth[row, slot] > 0
    return slots[slot[useful]], row[useful]


def _drawn(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float32)
