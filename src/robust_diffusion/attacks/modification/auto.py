"""The strongest modification that this package knows, as one attack."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Kind
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.ensemble import Ensemble, Parts
from robust_diffusion.attacks.gradient_ascent import StepRule, climb
from robust_diffusion.attacks.losses import LOSSES, LossName, margins
from robust_diffusion.attacks.modification.base import (
    ModificationAttack,
    feature_range,
    flip,
    flipped,
    max_flips,
    membership,
    numbers_of,
    pairs_of,
)
from robust_diffusion.attacks.modification.pgd_modification import PGDModification
from robust_diffusion.attacks.modification.prbcd import GRBCD, LGRBCD, LRBCD, PRBCD, Loss
from robust_diffusion.attacks.modification.random_flip import DICE, RandomFlip
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.checks import SomeSteps
from robust_diffusion.system.artifact import Artifact

Blockwise = type[PRBCD] | type[GRBCD]

BLOCKWISE: dict[Blockwise, Loss] = {
    PRBCD: "prob_margin",
    GRBCD: "masked",
    LRBCD: "prob_margin",
    LGRBCD: "masked",
}
"""Attacks by the gradient of edges, each with the loss by which it is run by itself."""

BLOCK_LOSSES: tuple[Loss, ...] = ("prob_margin", "tanh_margin", "masked")

BLOCK_SIZE = 50_000
"""Pairs of nodes drawn at a time; more if the flips are many."""

_Choice = Literal["gradient", "margin"]
_FEATURES: list[tuple[_Choice, LossName]] = list(
    product(("gradient", "margin"), ("logit", "tanh_margin", "masked"))
)
"""Choices of the targets whose features move, and losses; see `moved_features`."""

TRIAL = 1 / 8
"""Share of the steps of a first try."""

LAST = 2
"""Parts that go on after a first try."""

PGD_STEPS = 100
"""Steps of PGD as it is run by itself."""

SEARCH_PASSES = 2
"""Forward passes of a search without gradients, per step of a part that is never dropped."""

CANDIDATES = 32
"""Nodes that are drawn for the other end of a new edge, of which the best is taken."""

REMOVED_SHARE = 1 / 4
"""Share of the tried flips that remove an edge."""


class AutoModification(Ensemble):
    """An ensemble of modification attacks: the most harmful graph that any part finds.

    Nothing has to be chosen but the budget. First the flips: each single attack of the package as
    it is run by itself, with the same draws; those by gradient with other losses and through the
    model's adaptive form, of which the best of a short try run to their end; and a search that
    asks for no gradient and so catches a model that hides its own. Then, on the best flips,
    features of targets by gradient, and another search of flips around the best of all. All stop
    where no target is left.

    Every part's accuracy is kept in `PerturbedGraph.part_accuracy`. A part whose gradient is
    missing or not finite is dropped, and named in `given_up`.

    Reference: in the manner of AutoAttack, Croce and Hein 2020, arXiv:2003.01690; flips as in
    Geisler et al. 2021, arXiv:2110.14038, and Gosch et al. 2023, arXiv:2306.15427.

    Args:
        num_steps: Gradient steps of a part that is never dropped, at least 1.

    Examples:
        >>> from robust_diffusion import GCN, AutoModification, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(
        ...     GCN(8, 8, 7), data, Budget(edge_ratio=0.2), AutoModification(num_steps=1)
        ... )
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "auto_modification"
    kind: ClassVar[Kind] = "modification"

    def __init__(self, *, num_steps: SomeSteps = 125) -> None:
        self.num_steps = num_steps

    def has_budget(self, problem: Problem, budget: Budget) -> bool:
        """True if an edge may be flipped or a feature changed."""
        changes = budget.max_changed_nodes(problem.targets.numel())
        return max_flips(problem, budget) + changes > 0

    def run_parts(self, parts: Parts) -> None:
        """Flips, then features on the best of them, then flips again."""
        flips = max_flips(parts.problem, parts.budget)
        changes = parts.budget.max_changed_nodes(parts.problem.targets.numel())
        draws = parts.generator.get_state()  # of each attack, as if it were run by itself
        self._run_single(parts, draws)
        if flips and parts.lowest > 0:
            clean = parts.problem.x, parts.problem.edge_index
            self._search(parts, "search: flips", clean, flips)
        if flips and parts.lowest > 0:
            self._run_blockwise(parts, draws, flips)
        if changes and parts.lowest > 0:
            self._run_features(parts)
        if flips and parts.lowest > 0 and parts.graph is not None:
            self._search(parts, "search: around the best", parts.graph, flips)

    def _run_single(self, parts: Parts, draws: Tensor) -> None:
        """The attacks that are cheap, as they are run by themselves."""
        pgd = PGDModification(num_steps=min(PGD_STEPS, self.num_steps))
        for attack in (RandomFlip(), DICE(), pgd):
            _run_alone(parts, "white box", attack, draws)

    def _run_blockwise(self, parts: Parts, draws: Tensor, flips: int) -> None:
        """Flips by the gradient of edges: each attack by itself, then the best of other choices."""

        def try_blocks(form: str, kind: Blockwise, loss: Loss, num_steps: int) -> str | None:
            if parts.lowest == 0:
                return None
            size = max(BLOCK_SIZE, 4 * flips)
            attack = kind(block_size=size, num_steps=num_steps, loss=loss)
            return _run_alone(parts, form, attack, draws, f", {loss}")

        done = {
            (form, kind): try_blocks(form, kind, BLOCKWISE[kind], self.num_steps)
            for form in parts.forms
            for kind in (BLOCKWISE if form == "white box" else (PRBCD, GRBCD))
        }
        last = parts.last_form
        if not any(name for (form, _), name in done.items() if form == last):
            return  # there is no gradient of edges
        tried = {
            name: (kind, loss)
            for kind, loss in product(BLOCKWISE, BLOCK_LOSSES)
            if (last, kind) not in done or loss != BLOCKWISE[kind]
            if (name := try_blocks(last, kind, loss, self._few))
        }
        for name in sorted(tried, key=lambda name: parts.accuracy[name])[:LAST]:
            try_blocks(last, *tried[name], self.num_steps)

    def _run_features(self, parts: Parts) -> None:
        """Features on top of the best flips."""
        problem, form = parts.forms[parts.last_form], parts.last_form
        edges = problem.edge_index if parts.graph is None else parts.graph[1]

        def move(
            by: tuple[_Choice, LossName], num_steps: int, start: Artifact | None = None
        ) -> Artifact | None:
            name, args = f"{form}: features by {', '.join(by)}", (edges, parts.budget, by)
            moved = partial(moved_features, problem, *args, num_steps, start)
            return _run(parts, name, problem, moved)

        able = {}
        for by in _FEATURES:
            if parts.lowest > 0 and (moved := move(by, self._few)):
                able[by] = moved
        for by in sorted(able, key=lambda by: able[by].metadata["right"])[:LAST]:
            if parts.lowest > 0 and not able[by].metadata["is_flat"]:
                move(by, self.num_steps, able[by])

    @property
    def _few(self) -> int:
        """Steps of a first try."""
        return max(1, round(TRIAL * self.num_steps))

    def _search(self, parts: Parts, name: str, start: FeaturesAndEdges, flips: int) -> None:
        """Flips by predictions alone, from a graph on."""
        judge, (x, edge_index) = parts.judge, start
        pairs = flipped(judge.edge_index, edge_index, x.size(0))
        passes = SEARCH_PASSES * self.num_steps

        def find() -> Artifact:
            edges = search(judge, x, pairs, flips, passes, parts.generator)
            return _modified(judge.x, x, edges)

        _run(parts, name, judge, find)


def _run_alone(
    parts: Parts, form: str, attack: ModificationAttack, draws: Tensor, about: str = ""
) -> str | None:
    """Run an attack as it is run by itself; the part's name, if it was not dropped."""
    problem, generator = parts.forms[form], torch.Generator()
    generator.set_state(draws)
    name = f"{form}: {attack.name}{about}"

    def modify() -> Artifact:
        return _modified(problem.x, *attack.modify(problem, parts.budget, generator))

    return name if _run(parts, name, problem, modify) else None


def _run(
    parts: Parts, name: str, problem: Problem, compute: Callable[[], Artifact]
) -> Artifact | None:
    def graph(part: Artifact) -> FeaturesAndEdges:
        nodes, features = part.tensors["nodes"], part.tensors["features"]
        x = problem.x.index_copy(0, nodes, features) if nodes.numel() else problem.x
        return x, part.tensors["edge_index"]

    return parts.run(name, problem, compute, graph)


def _modified(
    clean: Float[Tensor, "n f"], x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> Artifact:
    """Edges and changed features of a modified graph."""
    nodes = (x != clean).any(1).nonzero().squeeze(1)
    return Artifact({"nodes": nodes, "features": x[nodes], "edge_index": edge_index})


@dataclass(frozen=True, eq=False)
class Flips:
    """Some flips, and how harmful they are."""

    pairs: Int[Tensor, "2 p"]  # different pairs u < v
    logits: Float[Tensor, "n c"]  # of all nodes
    margins: Float[Tensor, " t"]  # of the targets, above 0 if misclassified
    rank: tuple[int, float]  # smaller is more harmful


def search(
    problem: Problem,
    x: Float[Tensor, "n f"],
    pairs: Int[Tensor, "2 p"],
    most: int,
    num_steps: int,
    generator: torch.Generator,
) -> Int[Tensor, "2 e"]:
    """Random search among flips at targets that are nearest to being lost.

    Each step drops flips at which no target is wrong, tries others, at first half of all that
    may be made and at last one, and keeps what is more harmful. A new edge leads to a node of the
    class that the target takes for second best, drawn at random, among the targets, or by
    similar features, which a defence may ask for; a removed one comes from a node of the same
    class. Where an attack by gradient does less, the model hides its gradients.
    """
    best = _judged(problem, x, pairs)
    for step in range(num_steps):
        if best.rank[0] == 0:
            break
        count = max(1, round(most / 2 * (1 - step / num_steps)))
        tried = _tried(problem, x, best, count, generator)
        remaining = _kept(problem, best, most - tried.size(1), generator)
        pairs = torch.unique(numbers_of(torch.cat([remaining, tried], 1), x.size(0)))
        candidate = _judged(problem, x, pairs_of(pairs, x.size(0)))
        if candidate.rank < best.rank:
            best = candidate
    return flip(problem.edge_index, best.pairs, x.size(0))


def _judged(problem: Problem, x: Tensor, pairs: Tensor) -> Flips:
    labels = problem.labels
    with torch.no_grad():
        logits = problem.model(x, flip(problem.edge_index, pairs, x.size(0)))
    margin = margins(logits[problem.targets], labels)
    right = int((logits[problem.targets].argmax(1) == labels).sum())
    return Flips(pairs, logits, margin, (right, -margin.tanh().mean().item()))


def _kept(problem: Problem, best: Flips, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` of the flips, first those at misclassified targets."""
    lost = membership(problem.targets[best.margins > 0], best.logits.size(0))
    drawn = torch.rand(best.pairs.size(1), generator=generator, dtype=torch.float32).to(lost.device)
    order = (lost[best.pairs].any(0) + drawn).argsort(descending=True)
    return best.pairs[:, order[: max(0, count)]]


def _tried(
    problem: Problem, x: Tensor, best: Flips, count: int, generator: torch.Generator
) -> Tensor:
    """Return at most `count` more flips, at the targets closest to being misclassified."""
    device, n = x.device, x.size(0)
    right = (best.margins <= 0).nonzero().squeeze(1)
    noise = torch.rand(right.numel(), generator=generator, dtype=torch.float32).to(x)
    order = right[(best.margins[right] * (0.5 + noise)).argsort(descending=True)]
    chosen = order.repeat(-(-count // max(1, order.numel())))[:count]
    nodes, labels = problem.targets[chosen], problem.labels[chosen]

    there = torch.cat([problem.edge_index, best.pairs, best.pairs.flip(0)], 1)
    there = (there[0] * n + there[1]).sort().values
    second = best.logits[nodes].scatter(1, labels[:, None], -torch.inf).argmax(1)
    ends = torch.randint(n, (nodes.numel(), CANDIDATES), generator=generator).to(device)
    ends[:, ::2] = problem.targets[ends[:, ::2] % problem.targets.numel()]
    score = 2.0 * (best.logits.argmax(1)[ends] == second[:, None])
    if int(torch.randint(2, (), generator=generator)):
        score += F.cosine_similarity(x[nodes][:, None], x[ends], dim=2)
    taken = torch.isin(nodes[:, None] * n + ends, there) | (ends == nodes[:, None])
    score = score.masked_fill(taken, -torch.inf)
    top = score.max(1)
    added = torch.stack([nodes, ends.gather(1, top.indices[:, None]).squeeze(1)])
    added = added[:, top.values.isfinite()]

    src, dst = problem.edge_index
    inside = problem.all_labels[src] == problem.all_labels[dst]
    removable = problem.edge_index[:, inside & membership(nodes, n)[src]]
    order = torch.randperm(removable.size(1), generator=generator).to(device)
    removed = removable[:, order[: round(REMOVED_SHARE * count)]]
    pairs = torch.cat([removed, added], 1)[:, :count]
    return pairs[:, ~torch.isin(numbers_of(pairs, n), numbers_of(best.pairs, n))]


def moved_features(
    problem: Problem,
    edge_index: Int[Tensor, "2 e"],
    budget: Budget,
    by: tuple[_Choice, LossName],
    num_steps: int,
    start: Artifact | None = None,
) -> Artifact:
    """Take sign steps up the loss, of halving length; the best is kept by true accuracy.

    They go on from `start`, what earlier steps by the same found. `by` names the targets whose
    features change, of the largest first-order gain (`gradient`) or right and nearest to being lost
    (`margin`); and the loss, see `losses`.
    """
    nodes = start.tensors["nodes"] if start else chosen_nodes(problem, edge_index, budget, *by)
    clean = problem.x[nodes]
    return climb(
        problem,
        lambda new: problem.x.index_copy(0, nodes, new),
        edge_index,
        start.tensors["features"] if start else clean,
        StepRule(loss=by[1], rule="halving_sign", step_size=budget.epsilon / 2),
        feature_range(clean, budget),
        num_steps,
    ).packed(nodes=nodes, edge_index=edge_index)


def chosen_nodes(
    problem: Problem,
    edge_index: Int[Tensor, "2 e"],
    budget: Budget,
    choice: _Choice,
    loss: LossName,
) -> Int[Tensor, " c"]:
    """The targets whose features are worth changing, as many as the budget allows."""
    x, targets = problem.x, problem.targets
    if choice == "margin":
        with torch.no_grad():
            margin = margins(problem.logits(x, edge_index), problem.labels)
        worth = margin.masked_fill(margin > 0, -torch.inf)
    else:
        variable = x.detach().requires_grad_()
        value = LOSSES[loss](problem.logits(variable, edge_index), problem.labels).mean()
        slope = problem.slope(value, variable, "features")[targets]
        low, high = feature_range(x[targets], budget)
        worth = torch.maximum(slope * (low - x[targets]), slope * (high - x[targets])).sum(1)
    best = worth.argsort(descending=True, stable=True)
    return targets[best[: budget.max_changed_nodes(targets.numel())]]
