"""Base of attacks of several parts, which return the most harmful graph of any part."""

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from robust_diffusion.attacks.base import (
    Attack,
    FeaturesAndEdges,
    GivenUp,
    PerturbedGraph,
    Task,
    Victim,
)
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.errors import AttackError, GradientError
from robust_diffusion.system.artifact import Artifact

log = logging.getLogger(__name__)

Keep = Callable[[str, Callable[[], Artifact]], Artifact]
"""Return the cached result of the named part, computing it on a miss."""


class Ensemble(Attack):
    """An attack of several parts, which returns the graph of the most harmful one.

    A part is either complete or not run at all. An interrupted run resumes with the first part
    that is missing, and ends at the same graph bit for bit.
    """

    is_worst_case = True
    version = 7

    def __call__(
        self,
        victim: Victim,
        task: Task,
        budget: Budget,
        generator: torch.Generator,
        keep: Keep = lambda _, compute: compute(),
    ) -> PerturbedGraph:
        """Run the parts that `keep` has not cached; see `Attack` for the rest.

        Parts are requested in order. The name of each starts with its number, so that no two parts
        share a cache entry.
        """
        budget = budget.within(task.targets.numel())
        clean = PerturbedGraph(task.x, task.edge_index, task.x.size(0))
        if not self.has_budget(task, budget):
            return clean
        with victim, self.named_errors():
            self.check(victim)
            parts = Parts(victim, task, budget, generator, keep)
            self.run_parts(parts)
        graph, n = parts.graph, clean.num_original_nodes
        if graph is None:
            return replace(clean, given_up=parts.given_up)
        x, edge_index = graph
        return PerturbedGraph(x, edge_index, n, parts.accuracy, parts.best, parts.given_up)

    @abstractmethod
    def has_budget(self, task: Task, budget: Budget) -> bool:
        """Return whether the budget allows any change."""

    @abstractmethod
    def run_parts(self, parts: "Parts") -> None:
        """Run all parts through `parts`, which remembers the most harmful graph."""


@dataclass(eq=False)
class Parts:
    """Runs the parts of an ensemble one after the other, and remembers the most harmful graph."""

    victim: Victim  # the attacked model
    task: Task  # what the attacker knows
    budget: Budget  # limits of the attack
    generator: torch.Generator  # CPU generator
    keep: Keep  # cache of parts
    # Lowest accuracy by part, in 0..1.
    accuracy: dict[str, float] = field(default_factory=dict)
    # Builds the most harmful graph, which may take as much memory as the clean one.
    build: Callable[[], FeaturesAndEdges] | None = None
    best: str = ""  # the part that made it
    # Reason by part, for the parts whose gradient is missing or not finite.
    given_up: dict[str, GivenUp] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Determine the differentiable forms of the model, and the one that judges graphs.

        A model that samples is judged and differentiated through its mean.
        """
        self.judge, adaptive = self.victim.averaged(), self.victim.adaptive()
        self.forms = {"white box": self.victim}
        if adaptive is not self.victim:
            self.forms["adaptive"] = adaptive
        _ = self.judge.clean_logits  # computed now, since a model that samples draws for them
        self._count = 0

    @property
    def last_form(self) -> str:
        """The adaptive form of the model, if it has one, else the model as it is."""
        return list(self.forms)[-1]

    @property
    def lowest(self) -> float:
        """The lowest accuracy of all parts; infinite before the first."""
        return min(self.accuracy.values(), default=math.inf)

    @property
    def graph(self) -> FeaturesAndEdges | None:
        """The most harmful graph; `None` before the first."""
        return None if self.build is None else self.build()

    def run(
        self,
        name: str,
        form: Victim,
        compute: Callable[[], Artifact],
        graph: Callable[[Artifact], FeaturesAndEdges],
    ) -> Artifact | None:
        """Run one part, or load it from the cache with its random state, and judge its graph.

        Returns `None` if the part was dropped because its gradient is missing or not finite.
        """

        def judged() -> Artifact:
            try:
                artifact = compute()
            except AttackError as error:
                dropped = {"given_up": _given_up(error)}
                return Artifact(random_state(self.generator, device), dropped)
            with torch.no_grad():
                accuracy = self.task.accuracy(self.judge(*graph(artifact)))
            return Artifact(
                artifact.tensors | random_state(self.generator, device),
                artifact.metadata | {"accuracy": accuracy},
            )

        device = self.victim.device
        self._count += 1
        try:
            _ = form.clean_logits  # computed here whether the part is run or loaded from the cache
        except AttackError as error:
            self._give_up(name, _given_up(error))
            return None
        cached = self.keep(f"{self._count}: {name}", judged)
        set_random_state(cached.tensors, self.generator, device)
        if "given_up" in cached.metadata:
            self._give_up(name, GivenUp(*cached.metadata["given_up"]))
            return None
        artifact = Artifact({k: v.to(device) for k, v in cached.tensors.items()}, cached.metadata)
        accuracy = cached.metadata["accuracy"]
        if accuracy < self.lowest:
            self.build, self.best = partial(graph, artifact), name
        self.accuracy[name] = min(accuracy, self.accuracy.get(name, accuracy))
        return artifact

    def _give_up(self, name: str, given_up: GivenUp) -> None:
        log.warning("%s: dropped: %s", name, given_up.reason)
        self.given_up[name] = given_up


def _given_up(error: AttackError) -> GivenUp:
    return GivenUp(str(error), error.variable if isinstance(error, GradientError) else "")


def random_state(generator: torch.Generator, device: torch.device) -> dict[str, Tensor]:
    """Return the states of a generator, of torch's global CPU generator, and of a GPU's if any."""
    state = {"state.own": generator.get_state(), "state.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["state.cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(
    state: Mapping[str, Tensor], generator: torch.Generator, device: torch.device
) -> None:
    """Restore a state of `random_state`; the state of a GPU only if it was saved on one."""
    generator.set_state(state["state.own"])
    torch.set_rng_state(state["state.cpu"])
    if device.type == "cuda" and "state.cuda" in state:
        torch.cuda.set_rng_state(state["state.cuda"], device)
