"""The strongest injection that this package knows, as one attack."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from robust_diffusion.attacks.base import Kind
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.climb import Found, climb
from robust_diffusion.attacks.ensemble import Ensemble, Parts
from robust_diffusion.attacks.injection.base import connect
from robust_diffusion.attacks.injection.recipe import Recipe
from robust_diffusion.attacks.injection.search import search
from robust_diffusion.attacks.injection.sharing import SHARINGS, Degrees, SharingName
from robust_diffusion.attacks.injection.starts import STARTS, StartName
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.checks import Steps
from robust_diffusion.store import Artifact

EDGES: tuple[SharingName, ...] = ("classes", "equal")
STARTING: tuple[StartName, ...] = ("real", "uniform")
LOSSES: tuple[LossName, ...] = ("logit", "masked", "tanh_margin")
ALL = [
    Recipe(edges=edges, start=start, loss=loss)
    for edges, start, loss in product(EDGES, STARTING, LOSSES)
]
"""Parts of one spending on a model, and as many on its adaptive form if it has one."""

EDGES_PER_TARGET = (1, 4)
"""Edges that are injected per target where the budget is not spent. More is not always worse: each
edge slows a flow whose modulation divides by the degree."""

RUNGS = ((1 / 8, 2 * len(ALL)), (1 / 8, 6), (1 / 4, 3), (1 / 2, 2))
"""Per rung, its share of the steps and the number of parts of one spending that are left."""

LAST, LAST_SHARE, MOST_ROUNDS = 2, 1 / 2, 8
"""The best ascents of all, which go on for this share of the steps at a time, and how often."""

GAIN = 0.01
"""Accuracy, in 0..1, that such a round has to take for another one."""

SEARCH_SHARE = 1 / 2
"""Forward passes of the search without gradients, per step of a part that is never given up."""


@dataclass(frozen=True, eq=False)
class Climb:
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


class AutoInjection(Ensemble):
    """An ensemble of injection attacks: the most harmful graph that any part finds.

    Nothing has to be chosen but the budget. Its parts are gradient ascents, each with its own
    edges, start and loss, through the model and through its adaptive form, and a search that asks
    for no gradient and so catches a model that hides its own. After each rung of steps the less
    harmful parts are given up; the others go on from the best features that they have met. All
    stop where no target is left. All is done with an edge for each target, with four, and with
    every edge that the budget allows: none is always worse. The best two of all then go on as long
    as that pays: a model that was trained against such attacks resists the first steps.

    Every part's accuracy is kept in `PerturbedGraph.part_accuracy`. A part whose gradient is
    missing or not finite is given up with a warning in the log.

    Reference: in the manner of AutoAttack, Croce and Hein 2020, arXiv:2003.01690, with successive
    halving, Jamieson and Talwalkar 2016, arXiv:1502.07943.

    Args:
        num_steps: Gradient steps of a part that is never given up, at least 0; up to four times
            as many more where they pay.

    Raises:
        ConfigError: `num_steps` is negative or not whole.

    Examples:
        >>> from robust_diffusion import GCN, AutoInjection, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), AutoInjection(num_steps=2))
        >>> graph.to_data().num_nodes
        102
    """

    name = "auto"
    kind: ClassVar[Kind] = "injection"

    def __init__(self, *, num_steps: Steps = 120) -> None:
        self.num_steps = num_steps

    def has_budget(self, problem: Problem, budget: Budget) -> bool:
        """True if a node may be injected."""
        return budget.max_injected_nodes > 0

    def run_parts(self, parts: Parts, budget: Budget) -> None:
        """The search, then rung by rung the ascents that are left."""
        spendings = _spendings(budget, parts.problem.targets.numel())
        brackets = {
            words: self._bracket(parts, words, degrees, budget.limits)
            for words, degrees in spendings.items()
        }
        left: list[Climb] = []
        # The fewest edges first, which often leave no target for the others.
        for words in sorted(spendings, key=lambda words: sum(spendings[words])):
            ascents = brackets[words]
            for share, count in RUNGS:
                ascents = _rung(_best(ascents, count), parts, budget.limits, self._steps(share))
            left += ascents
        for _ in range(MOST_ROUNDS):
            before = parts.lowest
            left = _rung(_best(left, LAST), parts, budget.limits, self._steps(LAST_SHARE))
            if parts.lowest > before - GAIN:
                break

    def _steps(self, share: float) -> int:
        return round(share * self.num_steps)

    def _bracket(
        self, parts: Parts, words: str, degrees: Degrees, limits: tuple[float, float]
    ) -> list[Climb]:
        """Run the search with this number of edges, and list the ascents."""
        problem, generator = parts.problem, parts.generator
        graph = problem.x, problem.edge_index
        rows = {name: SHARINGS[name](problem, graph, degrees, generator) for name in EDGES}
        edges = {name: connect(graph[1], rows[name], graph[0].size(0)) for name in EDGES}
        starts = {
            (name, start): STARTS[start](problem, rows[name], limits, generator)
            for name in EDGES
            for start in STARTING
        }
        most = int(SEARCH_SHARE * self.num_steps) // len(EDGES)
        for name in EDGES:
            find = partial(search, parts.judge, edges[name], rows[name], limits, most, generator)
            _run(parts, f"search: {name}{words}", parts.judge, edges[name], find)
        return [
            Climb(
                f"{form}: {recipe}{words}",
                own,
                recipe,
                edges[recipe.edges],
                Found(starts[recipe.edges, recipe.start], problem.targets.numel(), 0.0),
            )
            for form, own in parts.forms.items()
            for recipe in ALL
        ]


def _spendings(budget: Budget, num_targets: int) -> dict[str, Degrees]:
    """Edges of each new node if all are spent, and if so many per target are, in words."""
    found: dict[str, Degrees] = {"": budget.injected_degrees}
    for each in EDGES_PER_TARGET:
        if each * num_targets < sum(budget.injected_degrees):
            fewer = replace(budget, max_injected_edges=each * num_targets)
            words = "an edge" if each == 1 else f"{each} edges"
            found[f", {words} a target"] = fewer.injected_degrees
    return found


def _best(ascents: Sequence[Climb], count: int) -> list[Climb]:
    return sorted(ascents, key=lambda ascent: ascent.found.right)[:count]


def _rung(
    ascents: Sequence[Climb], parts: Parts, limits: tuple[float, float], num_steps: int
) -> list[Climb]:
    """The ascents that could go on after some more steps of each."""
    able = []
    for ascent in ascents:
        if parts.lowest == 0:
            return []
        problem, start = ascent.problem, ascent.found.features
        go_on = partial(
            climb,
            *(problem, problem.fixed_rows.followed_by, ascent.edge_index, start),
            *(ascent.recipe, limits, num_steps),
        )
        found = _run(parts, ascent.name, problem, ascent.edge_index, go_on)
        if found is not None and not found.is_flat:
            able.append(replace(ascent, found=found))
    return able


def _run(
    parts: Parts, name: str, problem: Problem, edge_index: Tensor, compute: Callable[[], Found]
) -> Found | None:
    """Features that a part found for new nodes with these edges; `None` if it was given up."""

    def graph(artifact: Artifact) -> tuple[Tensor, Tensor]:
        return torch.cat([parts.judge.x, artifact.tensors["features"]]), edge_index

    found = parts.run(name, problem, lambda: compute().packed(), graph)
    return None if found is None else Found.unpacked(found)
