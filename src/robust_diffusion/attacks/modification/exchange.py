"""Search for flips by trial: one pass tries many, and credits each with the effect around it."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Task, Victim, finite_gradient
from robust_diffusion.attacks.losses import margins, tanh_margin
from robust_diffusion.attacks.modification.base import (
    TargetPairs,
    flip,
    membership,
    numbers_of,
    pairs_of,
    shuffled,
)
from robust_diffusion.attacks.modification.constants import FLIPS
from robust_diffusion.attacks.regions import Regions, pack
from robust_diffusion.errors import AttackError

Pair = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Flips:
    """A set of flips, and how harmful they are together."""

    pairs: Int[Tensor, "2 p"]  # distinct pairs u < v
    logits: Float[Tensor, "n c"]  # of all nodes
    margins: Float[Tensor, " t"]  # of the targets, above 0 if misclassified
    rank: tuple[int, float]  # smaller is more harmful

    @property
    def harm(self) -> Float[Tensor, " t"]:
        """Harm at each target, from which flips are credited."""
        return (self.margins > 0) + FLIPS.margin_weight * self.margins.tanh()


@dataclass(frozen=True, eq=False)
class TriedPairs:
    """Pairs of targets that a tournament tried, and the effect of each on its own ends."""

    pairs: Int[Tensor, "2 p"]  # positions among the targets
    gain: Float[Tensor, " p"]  # harm to both ends
    loses_both: Bool[Tensor, " p"]  # whether both ends were misclassified


@dataclass(eq=False)
class FlipSearch:
    """A search for flips by forward passes; an edge gradient may propose flips but is optional.

    A flip mostly affects the targets next to its ends. If the regions of several flips share no
    target, one pass tries them all. The effect of a flip in its region is only a proposal: a
    separate pass judges the accepted flips together, and they stay only if the result is more
    harmful.
    """

    victim: Victim  # the attacked model, which judges the flips
    task: Task  # what the attacker knows
    x: Float[Tensor, "n f"]  # features
    most: int  # flips that may be made
    generator: torch.Generator  # CPU generator
    forms: Sequence[Victim] = ()  # differentiable forms of the model

    def judge(self, pairs: Int[Tensor, "2 p"]) -> Flips:
        """Judge flips by one forward pass."""
        task = self.task
        with torch.no_grad():
            logits = self.victim(self.x, flip(task.edge_index, pairs, self.x.size(0)))
        margin = margins(logits[task.targets], task.labels)
        return Flips(pairs, logits, margin, (task.right(logits), -margin.tanh().mean().item()))

    def tournament(self, start: Flips, most_passes: int) -> TriedPairs:
        """Try new edges among the correctly classified targets of the clean graph.

        Each pass adds a perfect matching, one edge at every such target. All pairs are tried after
        about as many passes as there are targets.
        """
        task, n = self.task, self.x.size(0)
        there, right = numbers_of(task.edge_index, n), (start.margins <= 0).nonzero().squeeze(1)
        pairs, gains, both = [right.new_empty(2, 0)], [start.margins[:0]], [right[:0] > 0]
        for _, match in zip(range(most_passes), perfect_matchings(right), strict=False):
            match = match[:, ~torch.isin(numbers_of(task.targets[match], n), there)]
            after = self.judge(task.targets[match])
            pairs.append(match)
            gains.append((after.harm - start.harm)[match].sum(0))
            both.append((after.margins[match] > 0).all(0))
        return TriedPairs(torch.cat(pairs, 1), torch.cat(gains), torch.cat(both))

    def matched(self, start: Flips, measured: TriedPairs) -> Flips:
        """Add edges between pairs of targets if that misclassifies both ends.

        A maximum-weight matching of these pairs is judged as a whole. Pairs with an end that stays
        correctly classified are removed, and the rest is matched again until no such pair remains.
        """
        best, loses = start, measured.loses_both
        columns, gain = measured.pairs[:, loses].T.tolist(), measured.gain[loses].tolist()
        weights = {tuple(ends): worth for ends, worth in zip(columns, gain, strict=True)}
        while weights:
            match = heaviest_matching(weights)[: self.most]
            ends = measured.pairs.new_tensor(match).T
            after = self.judge(self.task.targets[ends])
            best = min(best, after, key=lambda flips: flips.rank)
            failed = (after.margins[ends] <= 0).any(0).tolist()
            for pair, fails in zip(match, failed, strict=True):
                if fails:
                    del weights[pair]
            if not any(failed):
                break
        return best

    def exchange(self, best: Flips, measured: TriedPairs, patience: int) -> Flips:
        """Exchange flips for better ones, until `patience` passes in a row gain nothing.

        A pass makes new flips and reverts others, all in disjoint regions. New flips of positive
        credit fill the rest of the budget. After that, the best new flip replaces the flip whose
        reversal costs least, as long as the sum of their credits is positive.
        """
        stale = step = 0
        regions = self._regions(best)
        while stale < patience and best.rank[0] > 0:
            step += 1
            new = self._proposed(best, measured, step)
            after = self._exchanged(best, new, regions)
            stale += 1
            if after.rank < best.rank:
                best, stale, regions = after, 0, self._regions(after)
        return best

    def _regions(self, flips: Flips) -> Regions:
        edges, n = self.task.edge_index, self.x.size(0)
        return Regions(flip(edges, flips.pairs, n), self.task.targets, n)

    def _exchanged(self, best: Flips, new: Int[Tensor, "2 p"], regions: Regions) -> Flips:
        """Return the better of two passes: one tries all flips, one has those that helped."""
        back = dict.fromkeys(map(tuple, shuffled(best.pairs, self.generator).T.tolist()))
        mixed = zip_longest(map(tuple, new.T.tolist()), back)
        areas = {p: regions.around(p, hops=1) for pair in mixed for p in pair if p is not None}
        order, room = list(areas), self.most - len(back)
        tried = [order[i] for members in pack(list(areas.values()))[:1] for i in members]
        reverted = [pair for pair in tried if pair in back]
        if not room and not reverted:  # all regions overlap the first, as if there is one target
            reverted = list(back)[:1]
        made = [pair for pair in tried if pair not in back][: len(reverted) + room]
        trial, credit = self.credited(best, made + reverted, areas)
        accepted = helpful(made, reverted, credit, room)
        if not accepted:
            return trial
        after = self.judge(toggled(best.pairs, accepted, self.x.size(0)))
        return min(trial, after, key=lambda flips: flips.rank)

    def credited(
        self, best: Flips, tried: Sequence[Pair], areas: Mapping[Pair, Set[int]]
    ) -> tuple[Flips, dict[Pair, float]]:
        """Make or revert flips in one pass; return the result and the credit of each flip."""
        trial = self.judge(toggled(best.pairs, tried, self.x.size(0)))
        change = (trial.harm - best.harm).tolist()
        return trial, {pair: sum(change[i] for i in areas[pair]) for pair in tried}

    def _proposed(self, best: Flips, measured: TriedPairs, step: int) -> Int[Tensor, "2 p"]:
        """Propose flips, alternating between the largest gradient, the tournament, and random."""
        n, kind = self.x.size(0), step % 3
        pairs = None
        if kind == 0 and self.forms:
            form = self.forms[step // 3 % len(self.forms)]
            with suppress(AttackError):  # the gradient may be missing on this graph only
                pairs = by_gradient(form, self.task, self.x, best, self.generator)
        elif kind == 1:
            drawn = torch.rand(measured.gain.numel(), generator=self.generator, dtype=torch.float32)
            worth = measured.gain * drawn.to(measured.gain)
            worth[(best.margins > 0)[measured.pairs].any(0)] = -torch.inf
            top = worth.topk(min(FLIPS.proposed, int(worth.isfinite().sum()))).indices
            pairs = self.task.targets[measured.pairs[:, top]]
        if pairs is None or not pairs.numel():
            pairs = at_random(self.task, self.x, best, self.generator)
        return pairs[:, ~torch.isin(numbers_of(pairs, n), numbers_of(best.pairs, n))]


def helpful(
    new: Sequence[Pair], back: Sequence[Pair], credit: Mapping[Pair, float], room: int
) -> list[Pair]:
    """Select new flips that fill the rest of the budget, then swaps of an old flip for a new one.

    `credit` is the harm added by making a new flip or reverting an old one (`back`).
    """
    new, back = (sorted(pairs, key=lambda pair: -credit[pair]) for pairs in (new, back))
    accepted = [pair for pair in new[:room] if credit[pair] > 0]
    for made, reverted in zip(new[room:], back, strict=False):
        if credit[made] + credit[reverted] > 0:
            accepted += [made, reverted]
    return accepted


def toggled(
    pairs: Int[Tensor, "2 p"], changed: Sequence[Pair], num_nodes: int
) -> Int[Tensor, "2 q"]:
    """Return the flips after toggling some: new ones are added, existing ones are reverted."""
    both = torch.cat([pairs, pairs.new_tensor(changed).reshape(-1, 2).T], 1)
    values, counts = torch.unique(numbers_of(both, num_nodes), return_counts=True)
    return pairs_of(values[counts == 1], num_nodes)


def perfect_matchings(nodes: Int[Tensor, " t"]) -> Iterator[Int[Tensor, "2 p"]]:
    """Yield matchings that together hold each pair once, by the circle method.

    If the number of nodes is odd, each matching leaves one node out.
    """
    ring = nodes if nodes.numel() % 2 == 0 else torch.cat([nodes, nodes.new_tensor([-1])])
    half = ring.numel() // 2
    for _ in range(ring.numel() - 1):
        match = torch.stack([ring[:half], ring[half:].flip(0)])
        yield match[:, (match >= 0).all(0)]
        ring = torch.cat([ring[:1], ring[1:].roll(1)])


def heaviest_matching(weights: Mapping[Pair, float]) -> list[Pair]:
    """Return the pairs of a maximum-weight matching, the heaviest first."""
    import networkx as nx  # late: it takes a quarter of a second

    graph = nx.Graph()
    graph.add_weighted_edges_from((u, v, weight) for (u, v), weight in weights.items())
    match = [(u, v) if (u, v) in weights else (v, u) for u, v in nx.max_weight_matching(graph)]
    return sorted(match, key=lambda pair: (-weights[pair], pair))


def by_gradient(
    form: Victim, task: Task, x: Float[Tensor, "n f"], best: Flips, generator: torch.Generator
) -> Int[Tensor, "2 p"]:
    """Propose the flips with the largest gradient among a random block of pairs and all edges."""
    n = x.size(0)
    there = flip(task.edge_index, best.pairs, n)
    block = TargetPairs(task.targets, n).draw_absent(FLIPS.block_size, there, generator)
    edges = torch.cat([there, block, block.flip(0)], 1)
    numbers, where = torch.unique(numbers_of(edges, n), return_inverse=True)
    weight = torch.isin(numbers, numbers_of(there, n)).to(x).requires_grad_()
    logits = form(x, edges, weight[where])[task.targets]
    loss = tanh_margin(logits, task.labels).mean()
    gain = finite_gradient(loss, weight, "edge weights") * (1 - 2 * weight.detach())
    pairs = pairs_of(numbers, n)
    gain[~membership(task.targets, n)[pairs].any(0)] = -torch.inf
    top = gain.argsort(descending=True)[: FLIPS.proposed]
    return pairs[:, top[gain[top].isfinite()]]


def at_random(
    task: Task, x: Float[Tensor, "n f"], best: Flips, generator: torch.Generator
) -> Int[Tensor, "2 p"]:
    """Propose flips at the targets closest to being misclassified.

    A new edge leads to a node of the target's second most likely class. The node is drawn at random
    from all nodes or from the targets, and in half of the calls similar features are preferred,
    which a defence may require. A removed edge leads to a node of the same class.
    """
    device, n = x.device, x.size(0)
    right = (best.margins <= 0).nonzero().squeeze(1)
    noise = torch.rand(right.numel(), generator=generator, dtype=torch.float32).to(x)
    order = right[(best.margins[right] * (0.5 + noise)).argsort(descending=True)]
    positions = order.repeat(-(-FLIPS.proposed // max(1, order.numel())))[: FLIPS.proposed]
    nodes, labels = task.targets[positions], task.labels[positions]

    there = flip(task.edge_index, best.pairs, n)
    second = best.logits[nodes].scatter(1, labels[:, None], -torch.inf).argmax(1)
    ends = torch.randint(n, (nodes.numel(), FLIPS.candidates), generator=generator).to(device)
    ends[:, ::2] = task.targets[ends[:, ::2] % task.targets.numel()]
    score = 2.0 * (best.logits.argmax(1)[ends] == second[:, None])
    if int(torch.randint(2, (), generator=generator)):
        score += F.cosine_similarity(x[nodes][:, None], x[ends], dim=2)
    taken = torch.isin(nodes[:, None] * n + ends, there[0] * n + there[1])
    score = score.masked_fill(taken | (ends == nodes[:, None]), -torch.inf)
    top = score.max(1)
    added = torch.stack([nodes, ends.gather(1, top.indices[:, None]).squeeze(1)])
    added = added[:, top.values.isfinite()]

    src, dst = task.edge_index
    inside = task.all_labels[src] == task.all_labels[dst]
    removable = shuffled(task.edge_index[:, inside & membership(nodes, n)[src]], generator)
    pairs = torch.cat([added, removable[:, : round(FLIPS.removed_share * FLIPS.proposed)]], 1)
    return shuffled(pairs_of(torch.unique(numbers_of(pairs, n)), n), generator)
