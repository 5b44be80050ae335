"""PRBCD and GRBCD, based on PyG's implementation, and LRBCD with limits per node."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import (
    FeaturesAndEdges,
    Need,
    Task,
    Victim,
    check_finite,
    finite_gradient,
)
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import ModificationAttack, TargetPairs, max_flips
from robust_diffusion.checks import Count, Positive, PositiveShare, SomeSteps, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.models.modules import seeded

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"'torch_geometric\.contrib' contains experimental code", UserWarning
    )
    from torch_geometric.contrib.nn import GRBCDAttack, PRBCDAttack

Loss = Literal["prob_margin", "tanh_margin", "margin", "masked"]


TOO_FEW = ("Sampling random block", "The search space size", "selected index k out of range")
"""Errors of PyG's attacks and of `topk` for a block with fewer pairs than a step flips."""

REPEATED = 64
"""Largest block, as a multiple of all pairs; a block this large holds every pair."""


class _AtTargets:
    """Mixin that makes PyG's attacks draw from the pairs at targets."""

    pairs: TargetPairs
    victim: Victim

    def _num_possible_edges(self, *_: object) -> int:
        return self.pairs.total

    def _forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, **_: Any) -> Tensor:
        # PyG's losses expect log-probabilities, and it keeps its weights in single precision.
        return F.log_softmax(self.victim(x, edge_index, edge_weight.to(x.dtype)), 1)

    def _linear_to_triu_idx(self, _: int, numbers: Tensor) -> Tensor:
        return self.pairs[numbers]


class PRBCDAtTargets(_AtTargets, PRBCDAttack):  # type: ignore[misc]
    """PyG's PRBCD on the pairs at targets."""

    def _project(self, budget: int, values: Tensor, eps: float = 1e-7) -> Tensor:
        # On the CPU, since each step of the bisection reads a number, which would sync a GPU.
        return super()._project(budget, values.cpu(), eps).to(values.device)  # type: ignore[no-any-return]


class GRBCDAtTargets(_AtTargets, GRBCDAttack):  # type: ignore[misc]
    """PyG's GRBCD on the pairs at targets."""


@validated("attacks.{self.name}")
class BlockCoordinateAttack(ModificationAttack):
    """Flips selected by the gradient with respect to a random block of pairs of nodes.

    Only pairs with at least one target are drawn. The features stay as they are.

    Deviation: The authors draw among all pairs of nodes.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "edge_gradient"})
    changes_features: ClassVar[bool] = False
    implementation: ClassVar[Any]
    local_ratio: float = 1.0  # most flips at a node as a share of its edges; 1 for no limit

    def __init__(
        self, *, block_size: Count = 50_000, num_steps: SomeSteps = 125, loss: Loss = "masked"
    ) -> None:
        self.block_size = block_size
        self.num_steps = num_steps
        self.loss = loss

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Run PyG's attack."""
        x, edge_index = task.x, task.edge_index
        pairs = TargetPairs(task.targets, x.size(0))
        # PyG's attack searches more pairs than it flips.
        flips = min(max_flips(task, budget), pairs.total - 1)
        if flips <= 0:
            return x, edge_index
        self._check_model(victim, task)
        attack = self.build(victim)
        attack.pairs = pairs
        attack.limits = local_limits(task, self.local_ratio)
        attack.block_size = min(attack.block_size, REPEATED * pairs.total)
        attack.loss = attack.metric = self._watched(attack.loss)
        seed = int(torch.randint(2**63 - 1, (), generator=generator).item())
        with seeded(seed), single_precision(x):
            try:
                edges, _ = attack.attack(
                    x, edge_index, task.all_labels, flips, idx_attack=self.scored(task)
                )
            except (RuntimeError, ValueError) as error:
                if not str(error).startswith(TOO_FEW):
                    raise
                raise ConfigError(
                    f"attacks.{self.name}.block_size={self.block_size}: too few to draw {flips} "
                    f"different pairs of {pairs.total}; use a larger one"
                ) from error
        return x, edges

    def scored(self, task: Task) -> Int[Tensor, " s"]:
        """Return the nodes whose loss the flips raise: the targets."""
        return task.targets

    def build(self, victim: Victim) -> Any:
        """Build PyG's attack on this victim."""
        # PyG's attack puts its model in eval mode, and calls it in `_forward` alone.
        attack = self.implementation(nn.Identity(), self.block_size, **self.settings())
        attack.victim = victim
        return attack

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of PyG's attack."""
        return {"epochs": self.num_steps, "loss": self.loss, "log": False}

    def _check_model(self, victim: Victim, task: Task) -> None:
        """Reject a model without a finite edge gradient, which PyG would fail on later."""
        victim.check_edge_gradient()
        weight = task.x.new_ones(task.edge_index.size(1), requires_grad=True)
        loss = task.loss(victim(task.x, task.edge_index, weight))
        finite_gradient(loss, weight, "edge weights")

    def _watched(self, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrap the loss in a check for NaN, which PyG's attack would otherwise keep as the best."""

        def watched(*arguments: Any) -> Tensor:
            value = loss(*arguments)
            check_finite(value.isfinite(), "edge weights")
            return value

        return watched


@validated("attacks.{self.name}")
class PRBCD(BlockCoordinateAttack):
    """Projected randomized block coordinate descent on the edges.

    The flips of a random block of pairs are relaxed to weights in [0, 1]. The weights take gradient
    steps projected onto the budget, and pairs of low weight are redrawn. At the end, flips are
    sampled from the weights, and the most harmful sample is returned.

    Reference: algorithm 1, Geisler et al. 2021, arXiv:2110.14038.

    Args:
        block_size: Pairs drawn at a time, with repetitions, at least 1.
        num_steps: Gradient steps, at least 1.
        resampling_ratio: Share of the steps that redraw pairs, in (0, 1].
        learning_rate: Scaled by flips per node, positive; the authors use 100, PyG 1000.
        loss: Loss that the flips raise: `prob_margin` | `tanh_margin` | `margin` | `masked`, the
            last being the cross-entropy of the targets that are still correctly classified.

    Examples:
        >>> from robust_diffusion.attacks import PRBCD
        >>> PRBCD(num_steps=2).kind
        'modification'
    """

    name = "prbcd"
    implementation: ClassVar[Any] = PRBCDAtTargets

    def __init__(
        self,
        *,
        resampling_ratio: PositiveShare = 0.8,
        learning_rate: Positive = 100.0,
        block_size: Count = 50_000,
        num_steps: SomeSteps = 125,
        loss: Loss = "prob_margin",
    ) -> None:
        super().__init__(block_size=block_size, num_steps=num_steps, loss=loss)
        self.resampling_ratio = resampling_ratio
        self.learning_rate = learning_rate

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """See `Attack`; PyG's PRBCD evaluates the graph after each step, and samples at the end."""
        return 2 * self.num_steps + int(self.implementation.coeffs["max_final_samples"])

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of PyG's PRBCD."""
        resampling = max(1, round(self.num_steps * self.resampling_ratio))
        return super().settings() | {"epochs_resampling": resampling, "lr": self.learning_rate}


class GRBCD(BlockCoordinateAttack):
    """Greedy randomized block coordinate descent on the edges.

    Each step flips the pairs of a random block with the highest gradient. Their number spreads the
    budget evenly over the steps.

    Reference: algorithm 2, Geisler et al. 2021, arXiv:2110.14038.

    Args:
        block_size: Pairs drawn at a time, with repetitions, at least 1.
        num_steps: Steps, at least 1; the attack takes at most one step per flip.
        loss: Loss that the flips raise: `prob_margin` | `tanh_margin` | `margin` | `masked`, the
            last being the cross-entropy of the targets that are still correctly classified.

    Examples:
        >>> from robust_diffusion.attacks import GRBCD
        >>> GRBCD(num_steps=2).kind
        'modification'
    """

    name = "grbcd"
    implementation: ClassVar[Any] = GRBCDAtTargets


@contextmanager
def single_precision(like: Tensor) -> Iterator[None]:
    """Make float32 the default data type within the context if `like` is of that type.

    PyG draws without a data type; the draws must not depend on the caller's default.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if like.dtype == torch.float32 else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def local_limits(task: Task, ratio: float) -> Int[Tensor, " n"]:
    """Return the most flips at each node: a share of its edges, rounded down."""
    share = Fraction(str(ratio))  # exact in decimals
    degrees: Tensor = degree(task.edge_index[0], task.x.size(0), dtype=torch.long)
    return degrees * share.numerator // share.denominator


def within_limits(
    pairs: Int[Tensor, "2 p"],
    weights: Float[Tensor, " p"],
    limits: Int[Tensor, " n"],
    worth: Float[Tensor, " p"],
) -> Float[Tensor, " p"]:
    """Reduce weights in 0..1 until their sum at every node is within its limit.

    Pairs with the largest `worth` are served first.
    """
    room = limits.tolist()
    cut = weights.tolist()
    ends = pairs.T.tolist()
    for i in worth.argsort(descending=True, stable=True).tolist():
        u, v = ends[i]
        cut[i] = min(cut[i], room[u], room[v])
        room[u] -= cut[i]
        room[v] -= cut[i]
    return weights.new_tensor(cut)


class LocalPRBCD(PRBCDAtTargets):
    """PyG's PRBCD with a limit per node."""

    limits: Int[Tensor, " n"]

    relaxed: Float[Tensor, " p"]

    def _project(self, budget: int, values: Tensor, eps: float = 1e-7) -> Tensor:
        local = self._within(self.block_edge_index, values.clamp(0, 1), values)
        self.relaxed = super()._project(budget, local, eps)  # never makes a weight larger
        return self.relaxed

    def _sample_final_edges(self, *arguments: Any, **further: Any) -> Any:
        self.relaxed = self.block_edge_weight.clone()  # of the best step
        return super()._sample_final_edges(*arguments, **further)

    def _get_modified_adj(
        self, edge_index: Tensor, edge_weight: Tensor, pairs: Tensor, weights: Tensor
    ) -> Any:
        if not weights.requires_grad:  # a sample; relaxed weights are already projected
            weights = self._within(pairs, weights, self.relaxed)
        return super()._get_modified_adj(edge_index, edge_weight, pairs, weights)

    def _within(self, pairs: Tensor, weights: Tensor, worth: Tensor) -> Tensor:
        large = weights > self.coeffs["eps"]  # the others stay, so that they can still grow
        cut = weights.clone()
        cut[large] = within_limits(pairs[:, large], weights[large], self.limits, worth[large])
        return cut


@validated("attacks.{self.name}")
class LRBCD(PRBCD):
    """PRBCD with a limit per node: at most a share of each node's edges is flipped at that node.

    The limits keep the attack from spending the budget on few nodes. They belong to the attack;
    only the budget of all flips is declared and audited. Relaxed weights are reduced to the limits,
    the largest first, before PRBCD projects them onto the budget, and so are the samples at the
    end.

    Reference: Gosch et al. 2023, arXiv:2306.15427, on Geisler et al. 2021, arXiv:2110.14038.

    Args:
        local_ratio: Most flips at a node as a share of its edges, in (0, 1], rounded down. For
            all other arguments see `PRBCD`.

    Examples:
        >>> from robust_diffusion.attacks import LRBCD
        >>> LRBCD(num_steps=2).kind
        'modification'
    """

    name = "lrbcd"
    implementation: ClassVar[Any] = LocalPRBCD

    def __init__(
        self,
        *,
        local_ratio: PositiveShare = 0.5,
        resampling_ratio: PositiveShare = 0.8,
        learning_rate: Positive = 100.0,
        block_size: Count = 50_000,
        num_steps: SomeSteps = 125,
        loss: Loss = "prob_margin",
    ) -> None:
        super().__init__(
            resampling_ratio=resampling_ratio,
            learning_rate=learning_rate,
            block_size=block_size,
            num_steps=num_steps,
            loss=loss,
        )
        self.local_ratio = local_ratio
