"""A search for harmful flips that asks the model for predictions alone."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import undirected_edge_numbers
from robust_diffusion.attacks.losses import margins
from robust_diffusion.attacks.modification.base import flip, membership
from robust_diffusion.attacks.problem import Problem

CANDIDATES = 32
"""Nodes that are drawn for the other end of a new edge, of which the best is taken."""

REMOVED_SHARE = 1 / 4
"""Share of the tried flips that remove an edge."""


@dataclass(frozen=True, eq=False)
class Flips:
    """Some flips, and how harmful they are.

    Args:
        pairs: Different pairs u < v.
        logits: Of all nodes.
        margins: Of the targets, above 0 where one is lost.
        rank: Smaller is more harmful.
    """

    pairs: Int[Tensor, "2 p"]
    logits: Float[Tensor, "n c"]
    margins: Float[Tensor, " t"]
    rank: tuple[int, float]


def search(
    problem: Problem,
    x: Float[Tensor, "n f"],
    pairs: Int[Tensor, "2 p"],
    most: int,
    num_steps: int,
    generator: torch.Generator,
) -> Int[Tensor, "2 e"]:
    """Random search among flips at targets that are nearest to being lost.

    Each step gives up flips at which no target is lost, tries others, at first half of all that
    may be made and at last one, and keeps what is more harmful. A new edge leads to a node of the
    class that the target takes for second best, drawn at random, among the targets, or by
    similar features, which a defence may ask for; a removed one comes from a node of the same
    class. Where an attack by gradient does less, the model hides its gradients.

    Args:
        problem: The attacked model and its targets.
        x: Features, which stay.
        pairs: Flips at the start.
        most: Most flips, at least 1.
        num_steps: Forward passes after the first, at least 0.
        generator: CPU generator.

    Returns:
        Edges of the most harmful graph that was met.
    """
    best = _judged(problem, x, pairs)
    for step in range(num_steps):
        if best.rank[0] == 0:
            break
        count = max(1, round(most / 2 * (1 - step / num_steps)))
        tried = _tried(problem, x, best, count, generator)
        kept = _kept(problem, best, most - tried.size(1), generator)
        found = _judged(problem, x, _different(torch.cat([kept, tried], 1), x.size(0)))
        if found.rank < best.rank:
            best = found
    return flip(problem.edge_index, best.pairs, x.size(0))


def _judged(problem: Problem, x: Tensor, pairs: Tensor) -> Flips:
    labels = problem.labels
    with torch.no_grad():
        logits = problem.model(x, flip(problem.edge_index, pairs, x.size(0)))
    margin = margins(logits[problem.targets], labels)
    right = int((logits[problem.targets].argmax(1) == labels).sum())
    return Flips(pairs, logits, margin, (right, -margin.tanh().mean().item()))


def _kept(problem: Problem, best: Flips, count: int, generator: torch.Generator) -> Tensor:
    """So many of the flips, those first at which a target is lost."""
    lost = membership(problem.targets[best.margins > 0], best.logits.size(0))
    drawn = torch.rand(best.pairs.size(1), generator=generator, dtype=torch.float32).to(lost.device)
    order = (lost[best.pairs].any(0) + drawn).argsort(descending=True)
    return best.pairs[:, order[: max(0, count)]]


def _tried(
    problem: Problem, x: Tensor, best: Flips, count: int, generator: torch.Generator
) -> Tensor:
    """At most so many further flips, at the targets that are nearest to being lost."""
    device, n = x.device, x.size(0)
    right = (best.margins <= 0).nonzero().squeeze(1)
    noise = torch.rand(right.numel(), generator=generator, dtype=torch.float32).to(x)
    order = right[(best.margins[right] * (0.5 + noise)).argsort(descending=True)]
    chosen = order.repeat(-(-count // max(1, order.numel())))[:count]
    nodes, labels = problem.targets[chosen], problem.labels[chosen]

    there = torch.cat([problem.edge_index, best.pairs, best.pairs.flip(0)], 1)
    there = (there[0] * n + there[1]).sort().values
    second = best.logits[nodes].scatter(1, labels[:, None], -torch.inf).argmax(1)
    ends = torch.randint(n, (nodes.numel(), CANDIDATES), generator=generator).to(device)
    ends[:, ::2] = problem.targets[ends[:, ::2] % problem.targets.numel()]
    score = 2.0 * (best.logits.argmax(1)[ends] == second[:, None])
    if int(torch.randint(2, (), generator=generator)):
        score += F.cosine_similarity(x[nodes][:, None], x[ends], dim=2)
    taken = torch.isin(nodes[:, None] * n + ends, there) | (ends == nodes[:, None])
    score = score.masked_fill(taken, -torch.inf)
    top = score.max(1)
    added = torch.stack([nodes, ends.gather(1, top.indices[:, None]).squeeze(1)])
    added = added[:, top.values.isfinite()]

    src, dst = problem.edge_index
    inside = problem.all_labels[src] == problem.all_labels[dst]
    removable = problem.edge_index[:, inside & membership(nodes, n)[src]]
    order = torch.randperm(removable.size(1), generator=generator).to(device)
    removed = removable[:, order[: round(REMOVED_SHARE * count)]]
    pairs = torch.cat([removed, added], 1)[:, :count]
    return pairs[:, ~torch.isin(_numbers(pairs, n), _numbers(best.pairs, n))]


def _numbers(pairs: Tensor, n: int) -> Tensor:
    low, high = pairs.aminmax(dim=0) if pairs.numel() else (pairs[0], pairs[1])
    return low * n + high


def _different(pairs: Tensor, n: int) -> Tensor:
    ids = torch.unique(undirected_edge_numbers(torch.cat([pairs, pairs.flip(0)], 1), n))
    return torch.stack([ids // n, ids % n])
