"""Base of attacks of several parts, which return the most harmful graph of any part."""

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.base import (
    Attack,
    Classifier,
    FeaturesAndEdges,
    PerturbedGraph,
    Problem,
    frozen,
)
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.errors import AttackError
from robust_diffusion.models.adaptive import MeanOverDraws, adaptive_form
from robust_diffusion.system.artifact import Artifact

log = logging.getLogger(__name__)

Keep = Callable[[str, Callable[[], Artifact]], Artifact]
"""Return the cached result of the named part, computing it on a miss."""


class Ensemble(Attack):
    """An attack of several parts, which returns the graph of the most harmful one.

    A part is either complete or not run at all. An interrupted run resumes with the first part
    that is missing, and ends at the same graph bit for bit; see `run`.
    """

    is_worst_case = True
    version = 7

    def run(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: torch.Generator,
        keep: Keep = lambda _, compute: compute(),
    ) -> PerturbedGraph:
        """Run the parts that `keep` has not cached; see `Attack` for the rest.

        Parts are requested in order. The name of each starts with its number, so that no two parts
        share a cache entry.
        """
        budget = budget.within(target_nodes.numel())
        with frozen(model):
            problem = Problem(self.name, model, data, target_nodes)
            clean = PerturbedGraph(problem.x, problem.edge_index, problem.x.size(0))
            if not self.has_budget(problem, budget):
                return clean
            parts = Parts(problem, budget, generator, keep)
            self.run_parts(parts)
        if parts.graph is None:
            return replace(clean, given_up=parts.given_up)
        (x, edge_index), n = parts.graph, clean.num_original_nodes
        return PerturbedGraph(x, edge_index, n, parts.accuracy, parts.best, parts.given_up)

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Call `run` without a cache."""
        return self.run(model, data, target_nodes, budget, generator)

    @abstractmethod
    def has_budget(self, problem: Problem, budget: Budget) -> bool:
        """Return whether the budget allows any change."""

    @abstractmethod
    def run_parts(self, parts: "Parts") -> None:
        """Run all parts through `parts`, which remembers the most harmful graph."""


@dataclass(eq=False)
class Parts:
    """Runs the parts of an ensemble one after the other, and remembers the most harmful graph."""

    problem: Problem  # the attacked model and its targets
    budget: Budget  # limits of the attack
    generator: torch.Generator  # CPU generator
    keep: Keep  # cache of parts
    # Lowest accuracy by part, in 0..1.
    accuracy: dict[str, float] = field(default_factory=dict)
    graph: FeaturesAndEdges | None = None  # the most harmful graph; `None` before the first
    best: str = ""  # the part that made it
    # Reason by part, for the parts whose gradient is missing or not finite.
    given_up: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Determine the forms of the model."""
        self.forms, self.judge = _forms(self.problem)
        _ = self.judge.labels  # computed now: a model that samples uses random numbers for them
        self._count = 0

    @property
    def last_form(self) -> str:
        """The adaptive form of the model, if it has one, else the model as it is."""
        return list(self.forms)[-1]

    @property
    def lowest(self) -> float:
        """The lowest accuracy of all parts; infinite before the first."""
        return min(self.accuracy.values(), default=math.inf)

    def run(
        self,
        name: str,
        problem: Problem,
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
                return Artifact(random_state(self.generator, device), {"given_up": str(error)})
            accuracy = self.judge.right(*graph(artifact)) / self.judge.targets.numel()
            return Artifact(
                artifact.tensors | random_state(self.generator, device),
                artifact.metadata | {"accuracy": accuracy},
            )

        device = self.problem.x.device
        self._count += 1
        try:
            _ = problem.labels  # computed here whether the part is run or loaded from the cache
        except AttackError as error:
            self._give_up(name, str(error))
            return None
        cached = self.keep(f"{self._count}: {name}", judged)
        set_random_state(cached.tensors, self.generator, device)
        if "given_up" in cached.metadata:
            self._give_up(name, cached.metadata["given_up"])
            return None
        artifact = Artifact({k: v.to(device) for k, v in cached.tensors.items()}, cached.metadata)
        accuracy = cached.metadata["accuracy"]
        if accuracy < self.lowest:
            self.graph, self.best = graph(artifact), name
        self.accuracy[name] = min(accuracy, self.accuracy.get(name, accuracy))
        return artifact

    def _give_up(self, name: str, reason: str) -> None:
        log.warning("%s: dropped: %s", name, reason)
        self.given_up[name] = reason


def _forms(problem: Problem) -> tuple[dict[str, Problem], Problem]:
    """Return the differentiable forms of the model by name, and the problem that judges graphs.

    The forms are the model as it is, and its adaptive form if that differs. A model whose
    predictions differ from pass to pass is judged and differentiated through its mean.
    """
    forms, judge, model = {"white box": problem}, problem, problem.model
    once = problem.clean_logits
    adaptive = adaptive_form(model) if isinstance(model, nn.Module) else model
    with torch.no_grad():
        again = model(problem.x, problem.edge_index)
    if not torch.equal(again, once):
        judge = replace(problem, model=MeanOverDraws(model))
        if not isinstance(adaptive, MeanOverDraws):
            adaptive = MeanOverDraws(adaptive)
    if adaptive is not model:
        forms["adaptive"] = replace(problem, model=adaptive)
    return forms, judge


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
