"""The strongest injection that this package knows, as one attack."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.base import (
    Attack,
    Classifier,
    Kind,
    Need,
    PerturbedGraph,
    frozen,
)
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.base import connect
from robust_diffusion.attacks.injection.climb import Found, Recipe, climb
from robust_diffusion.attacks.injection.search import search
from robust_diffusion.attacks.injection.sharing import SHARINGS, SharingName
from robust_diffusion.attacks.injection.starts import STARTS, StartName
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.checks import check_whole
from robust_diffusion.errors import AttackError
from robust_diffusion.models.adaptive import MeanOverDraws, adaptive_form

log = logging.getLogger(__name__)

EDGES: tuple[SharingName, ...] = ("classes", "equal")
STARTING: tuple[StartName, ...] = ("real", "uniform")
LOSSES: tuple[LossName, ...] = ("logit", "masked", "tanh_margin")
ALL = [Recipe(*parts) for parts in product(EDGES, STARTING, LOSSES)]
"""Parts on the adaptive form of a model, or on a model without one."""

PLAIN = [recipe for recipe in ALL if (recipe.start, recipe.loss) == ("uniform", "masked")]
"""Parts on a model as it is, where its adaptive form is another."""

RUNGS = ((1 / 8, len(ALL) + len(PLAIN)), (1 / 8, 6), (1 / 4, 3), (1 / 2, 2))
"""Per rung, its share of the steps and the number of parts that are left."""

SEARCH_SHARE = 1 / 2
"""Forward passes of the search without gradients, per step of a part that is never given up."""


@dataclass(frozen=True, eq=False)
class Part:
    """One gradient ascent.

    Args:
        name: In the record.
        problem: The form of the model that it is differentiated through.
        recipe: Loss and steps.
        edge_index: Edges, those of the new nodes included.
        found: The most harmful features so far.
    """

    name: str
    problem: Problem
    recipe: Recipe
    edge_index: Int[Tensor, "2 e"]
    found: Found


@dataclass
class Scores:
    """The accuracy that every part reached, and the most harmful graph.

    Args:
        judge: The attacked model and its targets.
        accuracy: By part, in 0..1.
        graph: Features and edges.
        part: Its part.
    """

    judge: Problem
    accuracy: dict[str, float] = field(default_factory=dict)
    graph: tuple[Tensor, Tensor] | None = None
    part: str = ""

    @property
    def lowest(self) -> float:
        """The lowest accuracy of all parts; infinite before the first."""
        return min(self.accuracy.values(), default=math.inf)

    def add(self, part: str, features: Tensor, edge_index: Tensor) -> None:
        """Judge what a part has found by the attacked model itself."""
        graph = torch.cat([self.judge.x, features]), edge_index
        accuracy = self.judge.right(*graph) / self.judge.targets.numel()
        if accuracy < self.lowest:
            self.graph, self.part = graph, part
        self.accuracy[part] = min(accuracy, self.accuracy.get(part, accuracy))


class AutoInjection(Attack):
    """An ensemble of injection attacks: the most harmful graph that any part finds.

    Nothing has to be chosen but the budget. Its parts are gradient ascents, each with its own
    edges, start and loss, through the model and through its adaptive form, and a search that asks
    for no gradient and so catches a model that hides its own. After each rung of steps the less
    harmful parts are given up; the others go on from the best features that they have met. All
    stop where no target is left.

    Every part's accuracy is kept in `PerturbedGraph.part_accuracy`. A part whose gradient is
    missing or not finite is given up with a warning in the log.

    Reference: in the manner of AutoAttack, Croce and Hein 2020, arXiv:2003.01690, with successive
    halving, Jamieson and Talwalkar 2016, arXiv:1502.07943.

    Args:
        num_steps: Gradient steps of a part that is never given up, at least 0.

    Raises:
        ConfigError: `num_steps` is negative or not whole.
    """

    name = "auto"
    kind: ClassVar[Kind] = "injection"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})
    is_worst_case = True

    def __init__(self, *, num_steps: int = 120) -> None:
        self.num_steps = check_whole("attacks.auto.num_steps", num_steps, at_least=0)

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Run all parts; see `Attack`."""
        budget.check_targets(target_nodes.numel())
        with frozen(model):
            problem = Problem(self.name, model, data, target_nodes)
            n = problem.x.size(0)
            if not budget.max_injected_nodes:
                return PerturbedGraph(problem.x, problem.edge_index, n)
            scores = self._run(problem, budget, generator)
        assert scores.graph is not None
        x, edge_index = scores.graph
        return PerturbedGraph(x, edge_index, n, scores.accuracy, scores.part)

    def _run(self, problem: Problem, budget: Budget, generator: torch.Generator) -> Scores:
        """The search, then rung by rung the ascents that are left."""
        forms = _forms(problem)
        scores = Scores(forms.pop("judge"))
        graph, degrees = (problem.x, problem.edge_index), budget.injected_degrees
        rows = {name: SHARINGS[name](problem, graph, degrees, generator) for name in EDGES}
        edges = {name: connect(graph[1], rows[name], graph[0].size(0)) for name in EDGES}
        starts = {
            (name, start): STARTS[start](problem, rows[name], budget.limits, generator)
            for name in EDGES
            for start in STARTING
        }
        most = int(SEARCH_SHARE * self.num_steps)
        for name in EDGES:
            found = search(
                scores.judge, edges[name], rows[name], budget.limits, most // 2, generator
            )
            scores.add(f"search: {name}", found.features, edges[name])
        parts = [
            Part(
                f"{form}: {recipe}",
                own,
                recipe,
                edges[recipe.edges],
                Found(starts[recipe.edges, recipe.start], problem.targets.numel(), 0.0),
            )
            for form, own in forms.items()
            for recipe in (PLAIN if form == "white box" and len(forms) > 1 else ALL)
        ]
        for share, count in RUNGS:
            parts = sorted(parts, key=lambda part: part.found.right)[:count]
            parts = self._climb(parts, scores, budget.limits, round(share * self.num_steps))
        return scores

    def _climb(
        self,
        parts: Sequence[Part],
        scores: Scores,
        limits: tuple[float, float],
        num_steps: int,
    ) -> list[Part]:
        """One rung: the parts that could go on after it."""
        able = []
        for part in parts:
            if scores.lowest == 0:
                return []
            try:
                found = climb(
                    part.problem,
                    part.problem.fixed_rows,
                    part.edge_index,
                    part.found.features,
                    part.recipe,
                    limits,
                    num_steps,
                )
            except AttackError as error:
                log.warning("%s: given up: %s", part.name, error)
                continue
            scores.add(part.name, found.features, part.edge_index)
            if not found.is_flat:
                able.append(replace(part, found=found))
        return able


def _forms(problem: Problem) -> dict[str, Problem]:
    """The model as it is, its adaptive form if that is another, and who judges what is found.

    A model whose predictions differ from pass to pass is judged, and differentiated, by its mean.
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
    return forms | {"judge": judge}
