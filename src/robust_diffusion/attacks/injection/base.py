"""Base of injection attacks, initial features of injected nodes, and random injection."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import Attack, FeaturesAndEdges, Kind, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import feature_set

DRAWN_AT_ONCE = 2**24
"""Most random numbers in memory at a time while targets are drawn."""


class InjectionAttack(Attack):
    """An attack that adds nodes, each with edges to target nodes."""

    kind: ClassVar[Kind] = "injection"

    def perturb(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Run the attack if a node may be injected; see `Attack`."""
        if not budget.max_injected_nodes:
            return task.x, task.edge_index
        x, edge_index = self.paired(self.inject(victim, task, budget, generator))
        if budget.features is None:
            return x, edge_index
        n = task.x.size(0)
        return torch.cat([x[:n], feature_set(budget).nearest(x[n:])]), edge_index

    @abstractmethod
    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Return features and edges of the graph with its new nodes, at least one."""


def draw_targets(
    targets: Int[Tensor, " t"], degrees: Sequence[int], generator: Generator
) -> list[Int[Tensor, "_"]]:
    """Draw distinct targets uniformly for each new node."""
    t, most = targets.numel(), max(degrees, default=0)
    rows = []
    # Drawing block by block gives the same numbers as drawing all at once.
    block = max(1, DRAWN_AT_ONCE // t)
    for first in range(0, len(degrees), block):
        size = min(block, len(degrees) - first)
        drawn = torch.rand(size, t, generator=generator, dtype=torch.float32).argsort(1)[:, :most]
        rows += list(targets[drawn.to(targets.device)])
    return [row[:count] for row, count in zip(rows, degrees, strict=True)]


def connect(
    edge_index: Int[Tensor, "2 e"], targets: Sequence[Int[Tensor, "_"]], first_new_node: int
) -> Int[Tensor, "2 e2"]:
    """Append undirected edges from each new node, at least one, to its targets."""
    counts = torch.tensor([row.numel() for row in targets], device=edge_index.device)
    new = torch.arange(first_new_node, first_new_node + len(targets), device=edge_index.device)
    edges = torch.stack([new.repeat_interleave(counts), torch.cat(list(targets))])
    return torch.cat([edge_index, edges, edges.flip(0)], 1)


class RandomInjection(InjectionAttack):
    """Random injection: random edges and random features; the control for every injection attack.

    Each new node gets edges to uniformly drawn, distinct target nodes. Its features are drawn from
    a normal distribution around the midpoint of the limits, whose standard deviation is half their
    distance, and clamped to the limits; about a third of them end at a limit. The model is never
    evaluated.

    Reference: RAND of GRB, arXiv:2111.04314.

    Deviation: GRB's standard deviation is the upper limit. That is the same for symmetric limits,
    but 0 or negative if no feature may be positive.

    Examples:
        >>> from robust_diffusion.attacks import RandomInjection
        >>> RandomInjection().kind
        'injection'
    """

    name = "random"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Draw the edges, then the features."""
        x, (low, high) = task.x, budget.limits
        rows = draw_targets(task.targets, budget.injected_degrees, generator)
        drawn = torch.randn(len(rows), x.size(1), generator=generator, dtype=torch.float32).to(x)
        features = (budget.centre + drawn * budget.spread).clamp(low, high)
        return torch.cat([x, features]), connect(task.edge_index, rows, x.size(0))


StartName = Literal["zero", "uniform", "small_normal", "real", "runner_up"]
_Rows = Sequence[Int[Tensor, "_"]]
Start = Callable[[Victim, Task, _Rows, Budget, Generator], Tensor]


def zero(victim: Victim, task: Task, rows: _Rows, budget: Budget, generator: Generator) -> Tensor:
    """Return the midpoint of the limits."""
    return task.x.new_full((len(rows), task.x.size(1)), budget.centre)


def uniform(
    victim: Victim, task: Task, rows: _Rows, budget: Budget, generator: Generator
) -> Tensor:
    """Draw features uniformly between the limits."""
    low, high = budget.limits
    drawn = torch.rand(len(rows), task.x.size(1), generator=generator, dtype=torch.float32)
    return low + (high - low) * drawn.to(task.x)


def small_normal(
    victim: Victim, task: Task, rows: _Rows, budget: Budget, generator: Generator
) -> Tensor:
    """Draw normal features around the midpoint; the standard deviation is a tenth of `spread`."""
    drawn = torch.randn(len(rows), task.x.size(1), generator=generator, dtype=torch.float32)
    return budget.centre + drawn.to(task.x) * budget.spread / 10


def real(victim: Victim, task: Task, rows: _Rows, budget: Budget, generator: Generator) -> Tensor:
    """Copy the features of nodes of the graph, drawn uniformly."""
    drawn = torch.randint(task.x.size(0), (len(rows),), generator=generator)
    return task.x[drawn.to(task.x.device)]


def runner_up(
    victim: Victim, task: Task, rows: _Rows, budget: Budget, generator: Generator
) -> Tensor:
    """Copy the features of nodes of the runner-up class of the new node's targets.

    The runner-up has the highest mean probability at the targets, except for their most frequent
    class. The node of the graph is drawn by its probability of that class.
    """
    if not any(row.numel() for row in rows):
        return real(victim, task, rows, budget, generator)
    probability = victim.clean_logits.softmax(1)
    classes = []
    for row in rows:
        mean = probability[row].mean(0) if row.numel() else probability.mean(0)
        mean[task.all_labels[row].mode().values if row.numel() else 0] = -1
        classes.append(mean.argmax())
    weights = probability.T[torch.stack(classes)].double().cpu() + 1e-12
    drawn = torch.multinomial(weights, 1, generator=generator).squeeze(1)
    return task.x[drawn.to(task.x.device)]


STARTS: Mapping[str, Start] = {
    "zero": zero,
    "uniform": uniform,
    "small_normal": small_normal,
    "real": real,
    "runner_up": runner_up,
}
