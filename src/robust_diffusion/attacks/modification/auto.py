"""`auto` for modifications: an ensemble that estimates the worst case."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from itertools import product
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Kind, Task, Victim, finite_gradient
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.ensemble import Ensemble, Parts
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.gradient_ascent import StepRule, climb
from robust_diffusion.attacks.losses import LOSSES, LossName, margins
from robust_diffusion.attacks.modification.base import feature_range, flip, flipped, max_flips
from robust_diffusion.attacks.modification.constants import FLIPS
from robust_diffusion.attacks.modification.exchange import FlipSearch, TriedPairs
from robust_diffusion.attacks.modification.prbcd import GRBCD
from robust_diffusion.checks import SomeSteps, validated
from robust_diffusion.system.artifact import Artifact

_Choice = Literal["gradient", "margin"]
_FEATURES: list[tuple[_Choice, LossName]] = list(
    product(("gradient", "margin"), ("logit", "tanh_margin", "masked"))
)
"""Selection of the targets whose features move, and the loss; see `moved_features`."""

PAIRS = "search: pairs, exchange"
"""Name of the part that starts from pairs, and of the exchange that follows it."""


@validated("attacks.{self.name}")
class AutoModification(Ensemble):
    """An ensemble of modification attacks: the most harmful graph that any part finds.

    Only the budget has to be set. The parts first search for flips: GRBCD, through the model and
    through its adaptive form; a tournament, which looks for edges that misclassify both ends; and
    an exchange from each result, which continues as long as it finds better flips. All of these
    except GRBCD work without gradients, and so catch a model that hides its gradients. On top of
    the best flips, further parts change features of targets by gradient, and one more exchange
    follows. The attack stops once every target is misclassified.

    `PerturbedGraph.part_accuracy` records the accuracy of every part. A part whose gradient is
    missing or not finite is dropped, and listed in `given_up`.

    Reference: in the manner of AutoAttack, Croce and Hein 2020, arXiv:2003.01690; flips as in
    Geisler et al. 2021, arXiv:2110.14038, and Gosch et al. 2023, arXiv:2306.15427.

    Args:
        num_steps: Gradient steps of a part that is never dropped, at least 1.

    Examples:
        >>> from robust_diffusion import Budget, attack
        >>> from robust_diffusion.attacks import AutoModification
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = GCN(8, 8, out_channels=7)
        >>> graph = attack(model, data, Budget(edge_ratio=0.2), AutoModification(num_steps=1))
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "auto_modification"
    kind: ClassVar[Kind] = "modification"

    def __init__(self, *, num_steps: SomeSteps = 125) -> None:
        self.num_steps = num_steps

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """See `Attack`."""
        return 6 * self.num_steps

    def has_budget(self, task: Task, budget: Budget) -> bool:
        """Return whether an edge may be flipped or a feature changed."""
        changes = budget.max_changed_nodes(task.targets.numel())
        return max_flips(task, budget) + changes > 0

    def run_parts(self, parts: Parts) -> None:
        """Search for flips, then for features on the best flips, then for flips again."""
        most = max_flips(parts.task, parts.budget)
        changes = parts.budget.max_changed_nodes(parts.task.targets.numel())
        forms = self._run_gradient(parts) if most else []
        task = parts.task
        search = FlipSearch(parts.judge, task, task.x, most, parts.generator, forms)
        measured = None
        if most and parts.lowest > 0:
            measured = self._run_flips(parts, search)
        if changes and parts.lowest > 0:
            before = parts.best
            self._run_features(parts)
            graph = parts.graph
            if measured and graph and parts.best != before and parts.lowest > 0:
                self._exchange(parts, "search: around the best", graph, search, measured)

    def _run_gradient(self, parts: Parts) -> list[Victim]:
        """Run GRBCD through each form of the model; return the forms that have a gradient."""
        attack, task, forms = GRBCD(num_steps=self.num_steps), parts.task, []
        draws = parts.generator.get_state()
        for name, form in parts.forms.items():
            generator = torch.Generator()
            generator.set_state(draws)

            def find(form: Victim = form, rng: torch.Generator = generator) -> Artifact:
                return _modified(task.x, *attack.modify(form, task, parts.budget, rng))

            if _run(parts, f"{name}: {attack.name}, exchange", form, find):
                forms.append(form)
        return forms

    def _run_flips(self, parts: Parts, search: FlipSearch) -> TriedPairs | None:
        """Run the tournament, and exchanges from its result and from the best of GRBCD."""
        task, starts = parts.task, {parts.best: parts.graph}

        def find() -> Artifact:
            clean = search.judge(task.edge_index[:, :0])
            measured = search.tournament(clean, FLIPS.tournament_passes * self.num_steps)
            made = search.matched(clean, measured)
            modified = _modified(task.x, task.x, flip(task.edge_index, made.pairs, len(task.x)))
            return Artifact(modified.tensors | vars(measured))

        paired = _run(parts, PAIRS, parts.judge, find)
        if paired is None:
            return None
        measured = TriedPairs(*(paired.tensors[key.name] for key in fields(TriedPairs)))
        starts = {PAIRS: (task.x, paired.tensors["edge_index"]), **starts}
        for name, start in starts.items():
            if start and parts.lowest > 0:
                self._exchange(parts, name, start, search, measured)
        return measured

    def _exchange(
        self,
        parts: Parts,
        name: str,
        start: FeaturesAndEdges,
        search: FlipSearch,
        measured: TriedPairs,
    ) -> None:
        """Exchange flips, starting from a graph."""
        task, (x, edge_index) = parts.task, start

        def find() -> Artifact:
            there = replace(search, x=x)
            first = there.judge(flipped(task.edge_index, edge_index, len(x)))
            best = there.exchange(first, measured, max(1, round(FLIPS.patience * self.num_steps)))
            return _modified(task.x, x, flip(task.edge_index, best.pairs, len(x)))

        _run(parts, name, parts.judge, find)

    def _run_features(self, parts: Parts) -> None:
        """Change features on top of the best flips."""
        form, task = parts.forms[parts.last_form], parts.task
        graph = parts.graph
        edges = task.edge_index if graph is None else graph[1]

        def move(
            by: tuple[_Choice, LossName], num_steps: int, start: Artifact | None = None
        ) -> Artifact | None:
            name, args = (
                f"{parts.last_form}: features by {', '.join(by)}",
                (edges, parts.budget, by),
            )
            moved = partial(moved_features, form, task, *args, num_steps, start)
            return _run(parts, name, form, moved)

        able, few = {}, max(1, round(FLIPS.feature_trial * self.num_steps))
        for by in _FEATURES:
            if parts.lowest > 0 and (moved := move(by, few)):
                able[by] = moved
        for by in sorted(able, key=lambda by: able[by].metadata["right"])[: FLIPS.feature_parts]:
            if parts.lowest > 0 and not able[by].metadata["is_flat"]:
                move(by, self.num_steps, able[by])


def _run(parts: Parts, name: str, form: Victim, compute: Callable[[], Artifact]) -> Artifact | None:
    def graph(part: Artifact) -> FeaturesAndEdges:
        nodes, features = part.tensors["nodes"], part.tensors["features"]
        clean = parts.task.x
        x = clean.index_copy(0, nodes, features) if nodes.numel() else clean
        return x, part.tensors["edge_index"]

    return parts.run(name, form, compute, graph)


def _modified(
    clean: Float[Tensor, "n f"], x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> Artifact:
    """Pack the edges and changed features of a modified graph."""
    nodes = (x != clean).any(1).nonzero().squeeze(1)
    return Artifact({"nodes": nodes, "features": x[nodes], "edge_index": edge_index})


def moved_features(
    victim: Victim,
    task: Task,
    edge_index: Int[Tensor, "2 e"],
    budget: Budget,
    by: tuple[_Choice, LossName],
    num_steps: int,
    start: Artifact | None = None,
) -> Artifact:
    """Take sign steps of halving length up the loss; return the features of lowest accuracy.

    `start` is the result of earlier steps with the same `by`, which are continued. `by` is a pair:
    how to select the targets whose features change, and the loss, see `losses`. The targets have
    the largest first-order gain (`gradient`), or are correctly classified and closest to the
    decision boundary (`margin`).
    """
    nodes = start.tensors["nodes"] if start else chosen_nodes(victim, task, edge_index, budget, *by)
    clean = task.x[nodes]
    return climb(
        victim,
        task,
        lambda new: task.x.index_copy(0, nodes, new),
        edge_index,
        start.tensors["features"] if start else clean,
        StepRule(loss=by[1], rule="halving_sign", step_size=budget.epsilon / 2),
        FeatureSet(*feature_range(clean, budget)),
        num_steps,
    ).packed(nodes=nodes, edge_index=edge_index)


def chosen_nodes(
    victim: Victim,
    task: Task,
    edge_index: Int[Tensor, "2 e"],
    budget: Budget,
    choice: _Choice,
    loss: LossName,
) -> Int[Tensor, " c"]:
    """Select the targets whose features are worth changing, as many as the budget allows."""
    x, targets = task.x, task.targets
    if choice == "margin":
        with torch.no_grad():
            margin = margins(victim(x, edge_index)[task.targets], task.labels)
        worth = margin.masked_fill(margin > 0, -torch.inf)
    else:
        variable = x.detach().requires_grad_()
        value = LOSSES[loss](victim(variable, edge_index)[task.targets], task.labels).mean()
        slope = finite_gradient(value, variable, "features")[targets]
        low, high = feature_range(x[targets], budget)
        worth = torch.maximum(slope * (low - x[targets]), slope * (high - x[targets])).sum(1)
    best = worth.argsort(descending=True, stable=True)
    return targets[best[: budget.max_changed_nodes(targets.numel())]]
