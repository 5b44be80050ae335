"""Parts of `auto`, each of which improves an injection, and the ascent among them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.gradient_ascent import Found, StepRule, climb
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.edge_allocation import SharingName
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.system.artifact import Artifact


@dataclass(frozen=True, eq=False)
class Injection:
    """Injected nodes: their edges, their features, and how harmful they are."""

    placement: Placement
    found: Found

    @classmethod
    def empty(cls, task: Task, budget: Budget) -> "Injection":
        """Return nodes that have neither edges nor features yet."""
        rows = [task.targets[:0]] * budget.max_injected_nodes
        return cls.at(task, Placement.of(task, rows, budget.injected_degrees, 0), task.x[:0])

    @classmethod
    def at(cls, task: Task, placement: Placement, features: Tensor) -> "Injection":
        """Return nodes whose harm is not known yet."""
        return cls(placement, Found(features, task.targets.numel(), 0.0))

    @classmethod
    def of_graph(cls, task: Task, budget: Budget, graph: FeaturesAndEdges) -> "Injection":
        """Read the injected nodes of an attacked graph, whose harm is not known here."""
        x, edge_index = graph
        placement = Placement.read(task, edge_index, budget.injected_degrees)
        return cls.at(task, placement, x[task.x.size(0) :])

    def packed(self) -> Artifact:
        """Convert to an artifact."""
        return self.found.packed(chosen=self.placement.chosen)

    def unpacked(self, artifact: Artifact) -> "Injection":
        """Restore the injection that was packed after this one was improved."""
        placement = replace(self.placement, chosen=artifact.tensors["chosen"].cpu())
        return Injection(placement, Found.unpacked(artifact))

    def graph(self, task: Task) -> FeaturesAndEdges:
        """Return features and edges of the graph with these nodes."""
        x = torch.cat([task.x, self.found.features])
        return x, self.placement.edges(task.edge_index)


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """An algorithm that improves injections; `improve` takes and returns what it changes.

    All else is the same in every call, so it is bound when the part is built: the methods of a
    cover or a search need all of it.
    """

    name: str  # in the record
    victim: Victim  # the form of the model that is differentiated
    judge: Victim  # the attacked model, which judges graphs
    task: Task  # what the attacker knows
    budget: Budget  # limits of the attack
    steps: int  # gradient steps of the attack, of which a part takes a share
    generator: Generator  # CPU generator

    @abstractmethod
    def improve(self, best: Injection) -> Injection:
        """Return an injection that starts from the best one so far."""

    @cached_property
    def allowed(self) -> FeatureSet:
        """Features that the budget allows for injected nodes."""
        return feature_set(self.budget)

    def on_device(self, numbers: Tensor) -> Tensor:
        """Copy numbers to the model's device, without waiting for it."""
        return numbers.to(self.task.x.device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class Climb(Part):
    """Gradient steps on the features, after which edges may move.

    Edges move in rounds, from misclassified targets to those nearest to the decision boundary. A
    kind of move is repeated as long as it gains; then the next kind follows. After each round the
    features are refitted, with the losses `tanh_margin` and `masked`. If a round is only slightly
    worse than the last, the search continues from it, so that edges can also change when only a
    joint change helps.
    """

    edges: SharingName | Literal["cover"]  # how the new nodes distribute their edges
    rule: StepRule  # loss and steps
    share: float = 0.0  # of the steps
    moves: int = 0  # rounds in which edges move

    def improve(self, best: Injection) -> Injection:
        """Fit the features, then move edges."""
        best = now = self._fitted(best.placement, best.found.features, self.rule, self.share)
        tries = idle = 0
        for _ in range(self.moves):
            if best.found.right == 0:
                break
            left_out = AUTO.left_out[tries % len(AUTO.left_out)]
            keep, by_slopes = AUTO.moves[idle % len(AUTO.moves)]
            new = self._moved(now, left_out, keep=keep, by_slopes=by_slopes)
            idle += new.found.right >= now.found.right
            tries = 0 if new.found.right < best.found.right else tries + 1
            if new.found.right < best.found.right:
                best = new
            if new.found.right <= now.found.right + int(AUTO.near * self.task.targets.numel()):
                now = new
            elif tries % AUTO.move_patience == 0:
                now = best
        return best

    def _moved(self, now: Injection, left_out: float, *, keep: bool, by_slopes: bool) -> Injection:
        """Move edges once, and return the better of two refits."""
        features, generator = now.found.features, self.generator
        edges = now.placement.trimmed(self.victim, self.task, features, generator)
        edges = edges.allotted(
            self.victim, self.task, features, left_out, generator, keep=keep, by_slopes=by_slopes
        )
        rules = replace(self.rule, loss="tanh_margin"), replace(self.rule, loss="masked")
        fits = [self._fitted(edges, features, rule, AUTO.refit_share) for rule in rules]
        return min(fits, key=lambda fit: fit.found.right)

    def _fitted(
        self, placement: Placement, start: Float[Tensor, "k f"], rule: StepRule, share: float
    ) -> Injection:
        edges, rows = placement.edges(self.task.edge_index), self.victim.with_rows
        count = round(share * self.steps)
        found = climb(self.victim, self.task, rows, edges, start, rule, self.allowed, count)
        return Injection(placement, found)
