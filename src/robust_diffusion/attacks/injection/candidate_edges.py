"""Candidate edges from new nodes to the targets, and their exchange by the gradient."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Task, Victim, finite_gradient
from robust_diffusion.attacks.injection.base import connect

MAX_CANDIDATES = 2**20
"""Most candidate edges with a weight at a time."""

HALVINGS = 40
"""Halvings after which an interval of length about 1 is below the resolution of a float."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidate edges from some new nodes to the targets, on the current graph."""

    victim: Victim  # the model that is differentiated
    task: Task  # source of the targets and the loss
    x: Float[Tensor, "m f"]  # features of all nodes, the new ones last
    edge_index: Int[Tensor, "2 e"]  # edges without those of the new nodes
    num_new: int  # number of new nodes k
    loss_cap: float | None  # cap on the cross-entropy of a target

    @cached_property
    def all_edges(self) -> Int[Tensor, "2 e2"]:
        """Edges of the graph, then every candidate in both directions."""
        rows = [self.task.targets] * self.num_new
        return connect(self.edge_index, rows, self.x.size(0) - self.num_new)

    def loss(self, weight: Float[Tensor, "k t"]) -> Float[Tensor, ""]:
        """Compute the loss of the targets if each candidate has this weight; 0 means no edge."""
        weights = weight.flatten()
        ones = weights.new_ones(self.edge_index.size(1))
        logits = self.victim(self.x, self.all_edges, torch.cat([ones, weights, weights]))
        return self.task.loss(logits, cap=self.loss_cap)

    def slope(self, weight: Float[Tensor, "k t"]) -> Float[Tensor, "k t"]:
        """Compute the gradient of the loss with respect to the weights."""
        weight = weight.detach().requires_grad_()
        return finite_gradient(self.loss(weight), weight, "edge weights")


def project(weight: Float[Tensor, "k t"], total: Int[Tensor, " k"]) -> Float[Tensor, "k t"]:
    """Project onto the nearest weights in [0, 1] whose sum over each row is at most its total.

    The result is clamp(weight - s, 0, 1) with the smallest s >= 0 in each row for which that holds.
    """
    low = weight.new_zeros(weight.size(0))
    high = weight.max(1).values.clamp_min(0)
    fits = weight.clamp(0, 1).sum(1) <= total
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = (weight - middle[:, None]).clamp(0, 1).sum(1) <= total
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    shift = torch.where(fits, torch.zeros_like(high), high)
    return (weight - shift[:, None]).clamp(0, 1)


def exchange(
    candidates: Candidates, chosen: Bool[Tensor, "k t"], swap_ratio: float
) -> Bool[Tensor, "k t"]:
    """Exchange edges once, at most a share of them; see `MetaGIA`."""
    present = chosen.to(candidates.x.dtype)
    slope = candidates.slope(present)
    # Pair the i-th worst edge of each node with its i-th best candidate.
    most = min(int(chosen.sum(1).max()), int((~chosen).sum(1).max()))
    worst = slope.masked_fill(~chosen, torch.inf).topk(most, 1, largest=False)
    best = slope.masked_fill(chosen, -torch.inf).topk(most, 1)
    gain, order = (best.values - worst.values).flatten().sort(descending=True)
    row, out, into = order // max(most, 1), worst.indices.flatten(), best.indices.flatten()
    count = min(int((gain > 0).sum()), max(1, int(chosen.sum() * swap_ratio)))
    with torch.no_grad():
        loss = candidates.loss(present)
        while count:
            first = order[:count]
            changed = chosen.clone()
            changed[row[:count], out[first]] = False
            changed[row[:count], into[first]] = True
            if candidates.loss(changed.to(present.dtype)) > loss:
                return changed
            count //= 2
    return chosen
