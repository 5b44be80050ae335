"""A search for harmful features that asks the model for predictions alone."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.gradient_ascent import Found
from robust_diffusion.attacks.injection.placement import Placement
from robust_diffusion.attacks.losses import tanh_margin
from robust_diffusion.attacks.problem import Problem

MUTATION = 0.3
"""Largest share of a node's features that one mutation mirrors."""

CROSSED = 0.2
"""Share of the nodes that take half of their features from another one instead."""


def search(
    problem: Problem,
    placement: Placement,
    limits: tuple[float, float],
    num_steps: int,
    generator: torch.Generator,
) -> Found:
    """An evolutionary search in which each injected node is selected by its own targets.

    Every node first tries each class as its goal, with the features at the limits along the
    difference between the mean features of nodes predicted as that class and of those predicted as
    its targets' most frequent one, and keeps the goal that harms its own targets most. After that,
    all nodes mutate at once in each forward pass, and each keeps what is better for its own
    targets. Where an attack by gradient does less, the model hides its gradients.

    Reference: in the manner of the evolutionary attack EvA, arXiv:2507.08212, for injected nodes.

    Args:
        problem: The attacked model and its targets.
        placement: Edges of the injected nodes.
        limits: Smallest and largest feature.
        num_steps: Mutations, at least 0; one or two forward passes each.
        generator: CPU generator.
    """
    return _Search(problem, placement, limits, generator).run(num_steps)


class _Search:
    def __init__(
        self,
        problem: Problem,
        placement: Placement,
        limits: tuple[float, float],
        generator: torch.Generator,
    ) -> None:
        self.problem, self.limits, self.generator = problem, limits, generator
        self.edges = placement.edges(problem.edge_index)
        self.chosen = placement.chosen.to(problem.x.dtype)
        self.best: Found | None = None

    def run(self, num_steps: int) -> Found:
        """The most harmful features of all goals and mutations."""
        goals = list(self.goals())
        harm = torch.stack([self.harm(goal) for goal in goals])
        each = torch.arange(self.chosen.size(0), device=harm.device)
        x = torch.stack(goals)[harm.argmax(0), each]
        own = self.harm(x)
        for _ in range(num_steps):
            if self.found.right == 0:
                break
            mutated = self.mutated(x)
            better = self.harm(mutated) > own
            if better.any():
                candidate = torch.where(better[:, None], mutated, x)
                harm = self.harm(candidate)
                if harm.sum() > own.sum():  # nodes that share targets can spoil each other's gain
                    x, own = candidate, harm
        return self.found

    @property
    def found(self) -> Found:
        """The most harmful features so far."""
        assert self.best is not None
        return self.best

    def harm(self, new: Float[Tensor, "k f"]) -> Float[Tensor, " k"]:
        """Sum over each node's own targets of the bounded margin loss."""
        labels = self.problem.labels
        with torch.no_grad():
            logits = self.problem.logits(self.problem.fixed_rows.followed_by(new), self.edges)
        loss = tanh_margin(logits, labels)
        right = int((logits.argmax(1) == labels).sum())
        found = Found(new, right, loss.mean().item())
        if self.best is None or found.rank < self.best.rank:
            self.best = found
        return self.chosen @ loss

    def goals(self) -> Iterator[Float[Tensor, "k f"]]:
        """Features that lead each node's targets from their class to another, class by class."""
        x = self.problem.x
        low, high = (x.new_tensor(limit) for limit in self.limits)
        predicted, labels = self.problem.clean_logits.argmax(1), self.problem.labels
        num_classes = self.problem.clean_logits.size(1)
        means = torch.stack(
            [
                x[predicted == c].mean(0) if (predicted == c).any() else x.mean(0)
                for c in range(num_classes)
            ]
        )
        counts = self.chosen @ torch.nn.functional.one_hot(labels, num_classes).to(x.dtype)
        own = means[counts.argmax(1)]
        for mean in means:
            yield torch.where(mean > own, high, low)

    def mutated(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Each node with some features mirrored between the limits, or crossed with another."""
        (k, f), (low, high) = x.shape, self.limits
        flipped = self._drawn(k, f) < MUTATION * self._drawn(k, 1)
        mirrored = torch.where(flipped, low + high - x, x)
        crossed = (self._drawn(k, 1) < CROSSED) & (self._drawn(k, f) < 1 / 2)
        return torch.where(crossed, x[self._permutation(k)], mirrored)

    def _drawn(self, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float32)
        return drawn.to(self.problem.x)

    def _permutation(self, k: int) -> Int[Tensor, " k"]:
        return torch.randperm(k, generator=self.generator).to(self.problem.x.device)
