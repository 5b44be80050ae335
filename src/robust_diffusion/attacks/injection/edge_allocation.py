"""Ways to distribute the edges of injected nodes among the targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import Task, Victim
from robust_diffusion.attacks.injection.base import draw_targets
from robust_diffusion.attacks.losses import margins

SharingName = Literal["drawn", "equal", "classes", "apart", "tdgia", "sequential", "gradient"]
_State = tuple[Tensor, Tensor]
"""Features and edges of the current graph."""
Degrees = Sequence[int]
"""Number of edges of each of the next nodes."""
_Rows = list[Tensor]
"""Distinct targets of each of these nodes."""
Sharing = Callable[[Victim, Task, _State, Degrees, Generator], _Rows]


def drawn(
    victim: Victim, task: Task, graph: _State, degrees: Degrees, generator: Generator
) -> _Rows:
    """Draw targets uniformly for each node, as SPEIT does."""
    return draw_targets(task.targets, degrees, generator)


def equal(
    victim: Victim, task: Task, graph: _State, degrees: Degrees, generator: Generator
) -> _Rows:
    """Draw targets so that each gets the same number of edges, or one more."""
    targets = task.targets
    used = torch.zeros(targets.numel(), dtype=torch.float32)
    rows = []
    for count in degrees:
        drawn = torch.rand(used.numel(), generator=generator, dtype=used.dtype)
        rows.append((used + drawn).argsort()[:count])
        used[rows[-1]] += 1
    # Copied together, to sync with a GPU once.
    ends = targets[torch.cat(rows).to(targets.device)]
    return list(torch.split(ends, [len(row) for row in rows]))


def classes(
    victim: Victim, task: Task, graph: _State, degrees: Degrees, generator: Generator
) -> _Rows:
    """Group targets of one class, so that the features of a node can mislead all its targets.

    The targets form a ring, ordered by class and at random within each class. The nodes take
    consecutive stretches of it, with starts spread over the whole ring.
    """
    targets, labels = task.targets, task.labels
    t = targets.numel()
    order = torch.randperm(t, generator=generator).to(targets.device)
    ring = targets[order[labels[order].argsort(stable=True)]]
    places, total = torch.arange(t, device=targets.device), max(1, sum(degrees))
    return [
        ring[(places[:count] + round(before * t / total)) % t]
        for before, count in zip(accumulate(degrees, initial=0), degrees, strict=False)
    ]


def apart(
    victim: Victim, task: Task, graph: _State, degrees: Degrees, generator: Generator
) -> _Rows:
    """Group targets as `classes` does, with separate nodes for the largest class.

    A node with targets of the largest class and of others moves all of them to one class. If that
    is the largest class, its targets of this class stay correctly classified.
    """
    targets, labels = task.targets, task.labels
    largest = labels == labels.mode().values
    if len(degrees) < 2 or largest.all():
        return classes(victim, task, graph, degrees, generator)
    count = round(len(degrees) * int(largest.sum()) / targets.numel())
    count = min(max(count, 1), len(degrees) - 1)
    parts = ((largest, degrees[:count]), (~largest, degrees[count:]))
    return [
        row
        for mask, of_part in parts
        for row in classes(victim, replace(task, targets=targets[mask]), graph, of_part, generator)
    ]


def tdgia(
    victim: Victim, task: Task, graph: _State, degrees: Degrees, generator: Generator
) -> _Rows:
    """Select the targets of the highest defect score on the graph so far, spread over classes."""
    most = max(degrees, default=0)
    return deal(defect_order(victim, task, graph, sum(degrees), most, generator), degrees)


def sequential(
    victim: Victim, task: Task, graph: _State, degrees: Degrees, generator: Generator
) -> _Rows:
    """Select the correct targets nearest to the decision boundary, grouped by class."""
    labels = task.labels
    with torch.no_grad():
        margin = margins(victim(*graph)[task.targets], labels)
    nearest = margin.masked_fill(margin > 0, -torch.inf).argsort(descending=True, stable=True)
    most = max(max(degrees, default=0), int((margin <= 0).sum()))
    chosen = nearest[: min(sum(degrees), most)]
    order = chosen[labels[chosen].argsort(stable=True)]
    return deal(task.targets[order], degrees)


def deal(order: Int[Tensor, " t"], degrees: Degrees) -> _Rows:
    """Deal targets out to the nodes in order, starting over at the end of the list."""
    places = torch.arange(sum(degrees), device=order.device)
    return list(torch.split(order[places % max(1, order.numel())], list(degrees)))


def defect_order(
    victim: Victim,
    task: Task,
    graph: _State,
    count: int,
    edges_per_node: int,
    generator: Generator,
) -> Int[Tensor, " k"]:
    """Order the targets of the highest defect score, with every class spread evenly."""
    labels = task.labels
    with torch.no_grad():
        probability = F.softmax(victim(*graph)[task.targets], 1)
    score = defect_score(
        2 + probability.gather(1, labels[:, None]).squeeze(1),
        degree(graph[1][1], graph[0].size(0), dtype=graph[0].dtype)[task.targets] + 1,
        edges_per_node,
    )
    best = score.argsort(descending=True, stable=True)[:count]
    best = best[torch.randperm(best.numel(), generator=generator).to(best.device)]
    return task.targets[spread_over_classes(best, labels[best])]


def defect_score(
    s: Float[Tensor, " t"], degree_plus_one: Float[Tensor, " t"], edges_per_node: int
) -> Float[Tensor, " t"]:
    """Compute TDGIA's topological defectiveness, 0.9 s / d + 0.1 s / sqrt(d m)."""
    return 0.9 * s / degree_plus_one + 0.1 * s / (degree_plus_one * edges_per_node).sqrt()


def spread_over_classes(nodes: Int[Tensor, " k"], labels: Int[Tensor, " k"]) -> Int[Tensor, " k"]:
    """Reorder nodes so that every stretch holds each class in its overall proportion.

    The i-th of c nodes of a class is placed at i / c of the way. The result is the same as taking
    the next node from the class that has used the smallest share of its nodes.
    """
    order = torch.argsort(labels, stable=True)
    sorted_labels = labels[order]
    counts = torch.bincount(sorted_labels)
    first = counts.cumsum(0) - counts
    rank = torch.arange(nodes.numel(), device=nodes.device) - first[sorted_labels]
    share = rank / counts[sorted_labels]
    return nodes[order[torch.argsort(share, stable=True)]]


SHARINGS: Mapping[str, Sharing] = {
    "drawn": drawn,
    "equal": equal,
    "classes": classes,
    "apart": apart,
    "tdgia": tdgia,
    "sequential": sequential,
    "gradient": equal,  # start of the exchange of edges
}
BATCHES: Mapping[str, int] = {"tdgia": 5, "sequential": 5}
"""Number of batches in which the nodes are injected; 1 for all other sharings."""
