"""PRBCD and GRBCD, over PyG's implementation."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.attacks.base import Need
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import ModificationAttack, edges_at
from robust_diffusion.attacks.modification.pairs import TargetPairs
from robust_diffusion.attacks.problem import Problem, check_finite, gradient
from robust_diffusion.attacks.randomness import seeded, single_precision
from robust_diffusion.checks import Count, Positive, PositiveShare, SomeSteps
from robust_diffusion.errors import ConfigError

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"'torch_geometric\.contrib' contains experimental code", UserWarning
    )
    from torch_geometric.contrib.nn import GRBCDAttack, PRBCDAttack

Loss = Literal["prob_margin", "tanh_margin", "margin", "masked"]


REPEATED = 64
"""Largest block, as a multiple of all pairs; it holds each of them."""


class _AtTargets:
    """Numbers the pairs that PyG's attacks draw from."""

    pairs: TargetPairs

    def _num_possible_edges(self, *_: object) -> int:
        return self.pairs.total

    def _linear_to_triu_idx(self, _: int, numbers: Tensor) -> Tensor:
        return self.pairs[numbers]


class PRBCDAtTargets(_AtTargets, PRBCDAttack):  # type: ignore[misc]
    """PyG's PRBCD on the pairs at targets."""

    def _project(self, budget: int, values: Tensor, eps: float = 1e-7) -> Tensor:
        # Each step of its bisection asks for a number, which a GPU would be waited for.
        return super()._project(budget, values.cpu(), eps).to(values.device)  # type: ignore[no-any-return]


class GRBCDAtTargets(_AtTargets, GRBCDAttack):  # type: ignore[misc]
    """PyG's GRBCD on the pairs at targets."""


class BlockCoordinateAttack(ModificationAttack):
    """Flips chosen by the gradient with respect to a random block of pairs of nodes.

    Only pairs of which at least one node is a target are drawn. The features stay.

    Args:
        block_size: Pairs drawn at a time, with repetitions, at least 1.
        num_steps: Gradient steps, at least 1.
        loss: What the flips raise: `prob_margin` | `tanh_margin` | `margin` | `masked`, the
            last the cross-entropy of those targets that are still right.

    Raises:
        ConfigError: A number out of range or an unknown loss.

    Deviation: The authors draw among all pairs of nodes.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "edge_gradient"})
    changes_features: ClassVar[bool] = False

    def __init__(self, *, block_size: Count, num_steps: SomeSteps, loss: Loss) -> None:
        self.block_size = block_size
        self.num_steps = num_steps
        self.loss = loss

    def modify(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
        """Hand the problem to PyG's attack."""
        x, edge_index, n = problem.x, problem.edge_index, problem.x.size(0)
        pairs = TargetPairs(problem.targets, n)
        flips = budget.max_flipped_edges(edges_at(problem.targets, edge_index, n).size(1))
        # PyG's attack searches more pairs than it flips.
        flips = min(flips, pairs.total - 1)
        if flips <= 0:
            return x, edge_index
        self._check_model(problem)
        attack = self.build(LogProbabilities(problem), problem)
        attack.pairs = pairs
        attack.block_size = min(attack.block_size, REPEATED * pairs.total)
        attack.loss = attack.metric = self._watched(attack.loss)
        seed = int(torch.randint(2**63 - 1, (), generator=generator).item())
        with seeded(seed), single_precision(x):
            try:
                edges, _ = attack.attack(
                    x, edge_index, problem.all_labels, flips, idx_attack=self.scored(problem)
                )
            except (RuntimeError, ValueError) as error:
                if not str(error).startswith(("Sampling random block", "The search space size")):
                    raise
                raise ConfigError(
                    f"attacks.{self.name}.block_size={self.block_size}: too few to draw {flips} "
                    f"different pairs of {pairs.total}; use a larger one"
                ) from error
        return x, edges

    def scored(self, problem: Problem) -> Int[Tensor, " s"]:
        """Nodes whose loss the flips raise: the targets."""
        return problem.targets

    @abstractmethod
    def build(self, model: nn.Module, problem: Problem) -> Any:
        """PyG's attack on this model, which gives log-probabilities."""

    def _check_model(self, problem: Problem) -> None:
        """Refuse a model without a finite gradient in the edge weights, before PyG trips on it."""
        problem.check_edge_weights()
        weight = problem.x.new_ones(problem.edge_index.size(1), requires_grad=True)
        loss = problem.loss(problem.x, problem.edge_index, weight)
        slope = gradient(loss, weight, attack=self.name, of="edge weights")
        check_finite(slope.isfinite().all(), attack=self.name, of="edge weights")

    def _watched(self, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The loss, looked at: PyG's attack keeps the best of its losses, and none beats a NaN."""

        def watched(*arguments: Any) -> Tensor:
            value = loss(*arguments)
            check_finite(value.isfinite(), attack=self.name, of="edge weights")
            return value

        return watched


class PRBCD(BlockCoordinateAttack):
    """Projected randomized block coordinate descent on the edges.

    The flips of a random block of pairs are relaxed to weights in [0, 1], take gradient steps
    projected onto the budget, and pairs of low weight are drawn anew; at the end flips are sampled
    from the weights, and the most harmful sample is kept.

    Reference: algorithm 1, Geisler et al. 2021, arXiv:2110.14038.

    Args:
        block_size: Pairs drawn at a time, with repetitions, at least 1.
        num_steps: Gradient steps, at least 1.
        resampling_ratio: Share of the steps that draw pairs anew, in (0, 1].
        learning_rate: Scaled by flips per node, positive; the authors take 100, PyG 1000.
        loss: What the flips raise: `prob_margin` | `tanh_margin` | `margin` | `masked`, the
            last the cross-entropy of those targets that are still right.

    Examples:
        >>> from robust_diffusion import GCN, PRBCD, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(edge_ratio=0.2), PRBCD(num_steps=2))
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "prbcd"
    implementation: ClassVar[Any] = PRBCDAtTargets

    def __init__(
        self,
        *,
        block_size: Count = 50_000,
        num_steps: SomeSteps = 125,
        resampling_ratio: PositiveShare = 0.8,
        learning_rate: Positive = 100.0,
        loss: Loss = "prob_margin",
    ) -> None:
        super().__init__(block_size=block_size, num_steps=num_steps, loss=loss)
        self.resampling_ratio = resampling_ratio
        self.learning_rate = learning_rate

    def build(self, model: nn.Module, problem: Problem) -> Any:
        """PyG's PRBCD on the model."""
        return self.implementation(
            model,
            self.block_size,
            epochs=self.num_steps,
            epochs_resampling=max(1, round(self.num_steps * self.resampling_ratio)),
            loss=self.loss,
            lr=self.learning_rate,
            log=False,
        )


class GRBCD(BlockCoordinateAttack):
    """Greedy randomized block coordinate descent on the edges.

    In each step, those pairs of a random block whose flip has the highest gradient are flipped,
    as many as spend the budget evenly over the steps.

    Reference: algorithm 2, Geisler et al. 2021, arXiv:2110.14038.

    Args:
        block_size: Pairs drawn at a time, with repetitions, at least 1.
        num_steps: Steps, at least 1; no more are taken than there are flips.
        loss: What the flips raise: `prob_margin` | `tanh_margin` | `margin` | `masked`, the
            last the cross-entropy of those targets that are still right.

    Examples:
        >>> from robust_diffusion import GCN, GRBCD, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(edge_ratio=0.2), GRBCD(num_steps=2))
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "grbcd"
    implementation: ClassVar[Any] = GRBCDAtTargets

    def __init__(
        self, *, block_size: Count = 50_000, num_steps: SomeSteps = 125, loss: Loss = "masked"
    ) -> None:
        super().__init__(block_size=block_size, num_steps=num_steps, loss=loss)

    def build(self, model: nn.Module, problem: Problem) -> Any:
        """PyG's GRBCD on the model."""
        return self.implementation(
            model, self.block_size, epochs=self.num_steps, loss=self.loss, log=False
        )


class LogProbabilities(nn.Module):
    """The log-probabilities that PyG's losses expect, of the attacked model."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.model, self.problem = problem.model, problem

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Log-probabilities of every node."""
        # PyG keeps its weights in single precision.
        return F.log_softmax(self.problem.logits_of_all(x, edge_index, edge_weight.to(x.dtype)), 1)
