"""Exchange of single edges and features, judged on the whole graph, with annealed acceptance."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from robust_diffusion.attacks.base import Victim
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.gradient_ascent import Ascent, StepRule, climb
from robust_diffusion.attacks.injection.constants import AUTO, Schedule
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Injection, Part
from robust_diffusion.attacks.injection.search import mutated
from robust_diffusion.attacks.losses import margins
from robust_diffusion.operators.propagation import Propagator

_Ends = list[tuple[int, int]]
"""Edges, each as an injected node and the position of a target."""


@dataclass(frozen=True, eq=False)
class Exchange(Part):
    """Simulated annealing of single edges, with features from a dictionary of fitted vectors.

    A step moves, adds, removes, transfers or swaps an edge, or gives a node another vector. The
    whole graph is evaluated, and the change is accepted by Metropolis' rule, so the search can
    leave a local optimum. An edge may lead to any target. One that stays correctly classified can
    still help: where a model carries features far, it collects the class that the node pushes and
    passes it on.

    The energy is the sum over the targets of sigmoid(-margin / width). Width and temperature fall
    geometrically. Gradients in edge weights guide most proposals of a propagation in C++. At the
    end the features are refitted.

    A schedule may also mutate the features, for models whose gradient is of no use.

    Reference: Kirkpatrick et al. 1983, doi:10.1126/science.220.4598.671; proposals by gradients in
    the manner of Grathwohl et al. 2021, arXiv:2102.04509.
    """

    vectors: Float[Tensor, "m f"]  # dictionary of features, besides those of the start
    schedule: Schedule
    fast: Propagator | None = None  # evaluates graphs in place of forward passes

    def improve(self, best: Injection) -> Injection:
        """Anneal from the edges and features of `best`."""
        start = best.placement
        vectors = torch.cat([self.vectors, best.found.features])
        k = len(start.chosen)
        state = _State(start.chosen.numpy().copy(), len(self.vectors) + np.arange(k))
        chain = _Chain(self, start, vectors)
        state = chain.run(state)
        placement = replace(start, chosen=torch.from_numpy(state.chosen))
        found = climb(
            self.victim,
            self.task,
            self.victim.with_rows,
            placement.edges(self.task.edge_index),
            chain.features(state),
            StepRule(loss="tanh_margin"),
            self.allowed,
            0 if self.schedule.mutated else round(AUTO.refit_share * self.steps),
        )
        return Injection(placement, found)

    def opposed(self, fast: Propagator) -> list[Injection]:
        """Return harmful starts in which some nodes oppose the others.

        Most nodes lead the targets to one class. They can do no harm to the targets of that class,
        which the other nodes lead to a second one. Several shares of such nodes are tried for
        every pair of classes. Of the most harmful pair, a start for either class as that of most
        nodes is returned, since the one that does less harm at first may end at more.
        """
        local, c = fast.predictions(self.vectors), fast.classes
        eye = torch.eye(c, dtype=local.dtype)
        # Vectors that lie farthest towards a class, and from a second class towards it, c x c.
        pure = local.argmax(0)[:, None].expand(c, c)
        apart = (local @ (eye[:, None] - eye).flatten(0, 1).T).argmax(0).view(c, c)
        best: dict[tuple[int, int], tuple[float, Injection]] = {}
        for first, few, placement in self._divided(c):
            for second, towards in product(range(c), (pure, apart)):
                if first == second:
                    continue
                vectors = towards[first, second].repeat(len(placement.chosen))
                vectors[:few] = towards[second, first]
                self.judge.passes.count += 1
                logits = fast(local[vectors], placement.chosen, placement.links)
                share, pair = self.task.share(logits), (first, second)
                if pair not in best or share < best[pair][0]:
                    best[pair] = share, Injection.at(self.task, placement, self.vectors[vectors])
        order = sorted(best, key=lambda pair: best[pair][0])
        starts = [best[pair][1] for pair in order if {*pair} == {*order[0]}]
        return AUTO.opposed * starts

    def _divided(self, classes: int) -> Iterator[tuple[int, int, Placement]]:
        """Yield a class, a number of nodes, and edges that lead those nodes alone to the class."""
        task, degrees = self.task, self.budget.injected_degrees
        for index, share, part in product(range(classes), AUTO.opposing, AUTO.thinned):
            inside = task.labels == index
            few = round(share * len(degrees))
            if not 0 < few < len(degrees) or inside.all() or not inside.any():
                continue
            fewer = [-(-degree // part) for degree in degrees]
            groups = (inside, fewer[:few]), (~inside, fewer[few:])
            rows = [
                row
                for mask, of_group in groups
                for row in SHARINGS["equal"](
                    self.judge,
                    replace(task, targets=task.targets[mask]),
                    (task.x, task.edge_index),
                    of_group,
                    self.generator,
                )
            ]
            yield index, few, Placement.of(task, rows, degrees, 0)


@dataclass(eq=False)
class _State:
    """Edges of the injected nodes, and the vector of the dictionary that each node has."""

    chosen: NDArray[np.bool_]  # [k, t]
    vectors: NDArray[np.int64]  # [k]

    def copy(self) -> "_State":
        return _State(self.chosen.copy(), self.vectors.copy())

    def toggle(self, ends: _Ends) -> None:
        for node, end in ends:
            self.chosen[node, end] ^= True

    def give(self, node: int, vector: int) -> int:
        """Give a node another vector; return its former one."""
        before = int(self.vectors[node])
        self.vectors[node] = vector
        return before


class _Chain:
    """A Markov chain of states, with what all of its steps share."""

    def __init__(self, part: Exchange, start: Placement, vectors: Float[Tensor, "m f"]) -> None:
        self.part, self.start, self.vectors = part, start, vectors
        self.capacity = start.capacity.tolist()
        self.local = None if part.fast is None else part.fast.predictions(vectors)
        seed = int(torch.randint(2**31, (), generator=part.generator))
        self.rng = np.random.default_rng(seed)
        clean = margins(part.judge.clean_logits[part.task.targets], part.task.labels)
        # Of margins; not 0, by which they are divided.
        self.unit = max(float(clean.abs().median()), 1e-12)
        self.odds: _Odds | None = None
        self.guided = False  # whether the odds draw the current proposal

    def run(self, state: _State) -> _State:
        """Run all steps of the schedule; return the most harmful state."""
        schedule, count = self.part.schedule, self.part.steps * self.part.schedule.per_step
        margin = self.margins(state)
        best, lowest = state.copy(), (int((margin <= 0).sum()), math.inf)
        for step in range(count):
            if lowest[0] == 0:
                break
            if step % AUTO.refresh == 0:
                heat, width = schedule.at(step / count)
                width *= self.unit
                energy = _energy(margin, width)
                if self.part.fast is not None:
                    self.odds = self._slopes(state, width, heat)
            self.guided = self.odds is not None and self.rng.random() < AUTO.guided
            known = len(self.vectors)
            ends, (node, vector) = self.proposal(state, margin)
            state.toggle(ends)
            former = state.give(node, vector)
            if not ends and former == vector:
                continue
            after = self.margins(state)
            change = _energy(after, width) - energy
            if change > 0 and self.rng.random() >= math.exp(-change / heat):
                state.toggle(ends)
                state.give(node, former)
                self.vectors = self.vectors[:known]  # without a mutation that was rejected
                continue
            margin, energy = after, energy + change
            rank = int((margin <= 0).sum()), energy
            if rank < lowest:
                lowest, best = rank, state.copy()
        return best

    def margins(self, state: _State) -> NDArray[np.floating]:
        """Compute the targets' margins; each evaluation counts as a pass."""
        part, labels = self.part, self.part.task.labels
        if part.fast is None or self.local is None:
            placement, features = self._placed(state), self.features(state)
            margin = placement.margins(part.judge, part.task, features).numpy()
        else:
            part.judge.passes.count += 1
            chosen = torch.from_numpy(state.chosen)
            local = self.local[torch.from_numpy(state.vectors)]
            margin = margins(part.fast(local, chosen, self.start.links), labels).numpy()
        # A flow may diverge on a graph, which is no success.
        finite: NDArray[np.floating] = np.nan_to_num(margin, nan=-np.inf)
        return finite

    def proposal(
        self, state: _State, margin: NDArray[np.floating]
    ) -> tuple[_Ends, tuple[int, int]]:
        """Draw a change: ends to toggle, and a node with its new vector; it may change nothing."""
        rng = self.rng
        node, kind = int(rng.integers(len(state.chosen))), rng.random()
        if self.part.schedule.mutated > rng.random():
            new = mutated(self.features(state), self.part.allowed, self.part.generator)[node]
            self.vectors = torch.cat([self.vectors, new[None]])
            return [], (node, len(self.vectors) - 1)
        if kind < AUTO.revectored:
            return [], (node, int(rng.integers(len(self.vectors))))
        own = state.chosen[node].nonzero()[0]
        ends: _Ends = []
        if kind < AUTO.moved:
            ends = self._moved(state, node, own, self._added(node, margin))
        elif len(own):
            end = self._removed(node, own)
            ends = [(node, end)] if kind < AUTO.removed else self._passed(state, node, end)
        return ends, (node, int(state.vectors[node]))

    def _moved(self, state: _State, node: int, own: NDArray[np.int64], end: int) -> _Ends:
        """Return a new edge of a node, mostly in place of another one."""
        if state.chosen[node, end]:
            return []
        is_full = len(own) >= self.capacity[node]
        if is_full or (len(own) and self.rng.random() < AUTO.replaced):
            return [(node, end), (node, self._removed(node, own))] if len(own) else []
        return [(node, end)]

    def _passed(self, state: _State, node: int, end: int) -> _Ends:
        """Pass an edge to another node, which may give one of its edges back."""
        other = int(self.rng.integers(len(state.chosen)))
        if state.chosen[other, end]:  # also if it is the same node
            return []
        theirs = state.chosen[other].nonzero()[0]
        has_room = len(theirs) < self.capacity[other]
        if has_room and self.rng.random() < AUTO.transferred:
            return [(node, end), (other, end)]
        back = self._removed(other, theirs) if len(theirs) else -1
        if back < 0 or state.chosen[node, back]:
            return []
        return [(node, end), (other, end), (node, back), (other, back)]

    def _added(self, node: int, margin: NDArray[np.floating]) -> int:
        """Draw the end of a new edge; without a guide, half are near misclassification."""
        rng, t = self.rng, len(margin)
        if self.guided and self.odds is not None:
            return _drawn(self.odds.added[node], rng)
        right = (margin <= 0).nonzero()[0]
        if rng.random() < AUTO.anywhere or not len(right):
            return int(rng.integers(t))
        for _ in range(AUTO.tries):
            end = int(right[rng.integers(len(right))])
            if rng.random() < math.exp(margin[end] / (AUTO.nearby * self.unit)):
                break
        return end

    def _removed(self, node: int, own: NDArray[np.int64]) -> int:
        """Draw an edge of a node by its present end."""
        if self.guided and self.odds is not None:
            end = _drawn(self.odds.removed[node], self.rng)
            if end in own:  # else it has moved since the last gradient
                return end
        return int(own[self.rng.integers(len(own))])

    def _slopes(self, state: _State, width: float, heat: float) -> "_Odds | None":
        slopes = self._placed(state).slopes(
            self.part.victim, self.part.task, self.features(state), 2 * width
        )
        return None if slopes is None else _Odds.of(slopes.double().numpy(), state.chosen, heat)

    def _placed(self, state: _State) -> Placement:
        return replace(self.start, chosen=torch.from_numpy(state.chosen))

    def features(self, state: _State) -> Float[Tensor, "k f"]:
        """Return the features of the injected nodes."""
        return self.vectors[torch.from_numpy(state.vectors).to(self.vectors.device)]


@dataclass(frozen=True, eq=False)
class _Odds:
    """Odds of the ends at which a node's edges are added and removed, summed along the targets."""

    added: NDArray[np.float64]  # [k, t]
    removed: NDArray[np.float64]  # [k, t]

    @classmethod
    def of(cls, slopes: NDArray[np.float64], chosen: NDArray[np.bool_], heat: float) -> "_Odds":
        """Prefer to add edges of large slope and to remove those of small slope."""

        def summed(gain: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
            # Half of the change of the energy, which is half of a slope, as locally balanced
            # proposals take it.
            gain = np.where(allowed, gain / (4 * heat), -np.inf)
            highest = gain.max(1, keepdims=True)
            highest[~np.isfinite(highest)] = 0
            odds: NDArray[np.float64] = np.exp(np.maximum(gain - highest, -50)).cumsum(1)
            return odds

        return cls(summed(slopes, ~chosen), summed(-slopes, chosen))


def differences(judge: Victim, allowed: FeatureSet) -> Float[Tensor, "m f"]:
    """Return features at the limits along the difference of the means of every two classes."""
    means = judge.class_means
    ahead = (means[:, None] - means).flatten(0, 1)
    return allowed.extreme(ahead[ahead.any(1)])


def _energy(margin: NDArray[np.floating], width: float) -> float:
    """Return the sum of sigmoid(-margin / width)."""
    return float((0.5 - 0.5 * np.tanh(margin / (2 * width))).sum())


def _drawn(summed: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw a position by odds that are summed."""
    return min(int(np.searchsorted(summed, rng.random() * summed[-1])), len(summed) - 1)


def directions(
    fast: Propagator, x: Float[Tensor, "n f"], allowed: FeatureSet, generator: torch.Generator
) -> Float[Tensor, "m f"]:
    """Fit features whose predictions lie farthest along many directions, from nodes of `x`.

    If a propagation is linear, a node does most harm with the features that are farthest along some
    direction of the predictions. These are each class, each difference of two classes, and random
    ones that favour one class.
    """
    c = fast.classes
    eye = torch.eye(c, dtype=x.dtype)
    pairs = (eye[:, None] - eye)[~torch.eye(c, dtype=torch.bool)]
    drawn = -torch.rand(AUTO.directions, c, generator=generator, dtype=torch.float32).log()
    favoured = torch.randint(c, (AUTO.directions,), generator=generator)
    goals = torch.cat([eye, pairs, eye[favoured] - drawn / drawn.sum(1, keepdim=True)])
    goals = (goals / goals.norm(dim=1, keepdim=True)).to(x)
    start = x[torch.randint(len(x), (2 * len(goals),), generator=generator).to(x.device)]

    def along(free: Tensor) -> Tensor:
        predicted = fast.network(allowed.exact(free))
        ahead: Tensor = (predicted * goals.repeat_interleave(2, 0)).sum()
        return ahead

    free = allowed.clip(start)
    for size in AUTO.sizes:
        rule = partial(StepRule(rule="sign", step_size=size).of, unit=allowed.unit)
        free = Ascent(free, along, rule, allowed.clip).advance(AUTO.fits)
    vectors = allowed.nearest(free)
    farthest = (fast.predictions(vectors) @ goals.T).argmax(0)
    best: Tensor = vectors[farthest]
    return best
