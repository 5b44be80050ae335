"""Search for features of injected nodes without gradients."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.gradient_ascent import Found
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.part import Injection, Part
from robust_diffusion.attacks.losses import tanh_margin


@dataclass(frozen=True, eq=False)
class Search(Part):
    """An evolutionary search in which each injected node is selected by its own targets.

    Every node first tries each class as its goal. Its features are at the limits, along the
    difference between the mean features of that class and of its targets' most frequent class (both
    by the model's predictions). The node keeps the goal that harms its own targets most. After
    that, all nodes mutate at once in each forward pass, and each keeps its mutation if it harms its
    own targets more. If a gradient attack does less harm than this search, the model hides its
    gradients.

    Reference: in the manner of the evolutionary attack EvA, arXiv:2507.08212, for injected nodes.
    """

    def improve(self, best: Injection) -> Injection:
        """Find features for the edges of `best`, with at most two passes per goal or mutation."""
        placement = best.placement
        # Once, since the model's sorted edges are cached by the tensor.
        at = placement.edges(self.task.edge_index), placement.chosen.to(self.task.x)
        goals = list(self._goals(at[1]))
        tried = [self._judged(*at, goal) for goal in goals]
        harm = torch.stack([harm for _, harm in tried])
        nodes = torch.arange(harm.size(1), device=harm.device)
        x = torch.stack(goals)[self.on_device(harm.argmax(0)), self.on_device(nodes)]
        found, reached = self._judged(*at, x)
        found = min((*(found for found, _ in tried), found), key=lambda one: one.rank)
        for _ in range(round(AUTO.search_share * self.steps)):
            if found.right == 0:
                break
            new = mutated(x, self.allowed, self.generator)
            candidate, harm = self._judged(*at, new)
            found = min(found, candidate, key=lambda one: one.rank)
            better = harm > reached
            if better.any():
                mixed = torch.where(self.on_device(better[:, None]), new, x)
                candidate, harm = self._judged(*at, mixed)
                found = min(found, candidate, key=lambda one: one.rank)
                # Nodes that share targets can cancel each other's gain.
                if harm.sum() > reached.sum():
                    x, reached = mixed, harm
        return Injection(placement, found)

    def _judged(
        self, edges: Int[Tensor, "2 e"], chosen: Float[Tensor, "k t"], new: Float[Tensor, "k f"]
    ) -> tuple[Found, Float[Tensor, " k"]]:
        """Judge features, also by the bounded margin loss summed over each node's own targets.

        All numbers are read together, to sync with a GPU once.
        """
        task, labels = self.task, self.task.labels
        with torch.no_grad():
            logits = self.judge(self.judge.with_rows(new), edges)[task.targets]
        loss = tanh_margin(logits, labels)
        right = (logits.argmax(1) == labels).sum()
        harm = chosen @ loss
        numbers = torch.cat([n.double() for n in (right[None], loss.mean()[None], harm)]).cpu()
        return Found(new, int(numbers[0]), numbers[1].item()), numbers[2:].to(harm.dtype)

    def _goals(self, chosen: Float[Tensor, "k t"]) -> Iterator[Float[Tensor, "k f"]]:
        """Yield features that drive each node's targets to another class, class by class."""
        labels, num_classes = self.task.labels, self.judge.clean_logits.size(1)
        means = self.judge.class_means
        counts = chosen @ F.one_hot(labels, num_classes).to(means.dtype)
        source = means[counts.argmax(1)]
        for mean in means:
            yield self.allowed.extreme(mean - source)


def mutated(
    x: Float[Tensor, "k f"], allowed: FeatureSet, generator: Generator
) -> Float[Tensor, "k f"]:
    """Mutate each node: mirror some features between the limits, or cross with another node."""
    k, f = x.shape

    def drawn(*shape: int) -> Tensor:
        numbers = torch.rand(shape, generator=generator, dtype=torch.float32)
        return numbers.to(x, non_blocking=True)

    flipped = drawn(k, f) < AUTO.mutation * drawn(k, 1) * allowed.odds(x)
    mirrored = torch.where(flipped, allowed.low + allowed.high - x, x)
    crossed = (drawn(k, 1) < AUTO.crossed) & (drawn(k, f) < 1 / 2)
    order = torch.randperm(k, generator=generator).to(x.device, non_blocking=True)
    return allowed.nearest(torch.where(crossed, x[order], mirrored))
