"""Injection attacks that find the new nodes' features by gradient steps."""

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import Need
from robust_diffusion.attacks.injection.base import InjectionAttack
from robust_diffusion.attacks.problem import Problem, check_finite, gradient
from robust_diffusion.attacks.rows import FixedRows
from robust_diffusion.checks import check_number, check_whole


class FeatureAttack(InjectionAttack):
    """An injection attack that finds the new nodes' features by gradient steps.

    All of them can trade harm for disguise: with `homophily` > 0 they maximise the loss plus that
    many times the mean similarity of an injected node and its neighbours, the harmonious
    adversarial objective.

    Reference: eq. (HAO), Chen et al. 2022, arXiv:2202.08057.

    Args:
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity, at least 0.

    Raises:
        ConfigError: A number out of range.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "feature_gradient"})

    def __init__(self, *, num_steps: int, homophily: float = 0.0) -> None:
        key = f"attacks.{self.name}"
        self.num_steps = check_whole(f"{key}.num_steps", num_steps, at_least=0)
        self.homophily = check_number(f"{key}.homophily", homophily, at_least=0)

    def disguise(
        self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], num_new: int
    ) -> Callable[[Tensor], Tensor | float]:
        """The term that HAO adds to the loss, as a function of the newest nodes' features.

        Args:
            x: Features of all nodes but the newest.
            edge_index: Edges, those of the newest nodes included.
            num_new: Number of the newest nodes.
        """
        if self.homophily == 0:
            return lambda _: 0.0
        around = neighbourhood(x, edge_index, num_new)
        return lambda new: self.homophily * similarity(new, around).mean()


class AdamAttack(FeatureAttack):
    """One that takes Adam's steps.

    Args:
        learning_rate: Adam's, positive.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
    """

    def __init__(
        self, *, learning_rate: float = 0.01, num_steps: int = 100, homophily: float = 0.0
    ) -> None:
        super().__init__(num_steps=num_steps, homophily=homophily)
        self.learning_rate = check_number(
            f"attacks.{self.name}.learning_rate", learning_rate, above=0
        )

    def minimize(
        self,
        free: Float[Tensor, "k f"],
        loss: Callable[[Tensor], Tensor],
        project: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "k f"]:
        """Adam on `free`, projected after each step.

        Args:
            free: Where to start.
            loss: Scalar loss of the free variable.
            project: Maps the variable back into its range.

        Raises:
            AttackError: There is no gradient, or it is not finite.
        """
        free = free.clone().requires_grad_()
        optimizer = torch.optim.Adam([free], lr=self.learning_rate)
        for _ in range(self.num_steps):
            free.grad = gradient(loss(free), free, attack=self.name, of="features")
            optimizer.step()
            if project is not None:
                with torch.no_grad():
                    free.copy_(project(free))
        # Adam's moments keep a NaN for good, so the last step tells of every step before it.
        check_finite(torch.isfinite(free).all(), attack=self.name, of="features")
        return free.detach()


class SignAttack(FeatureAttack):
    """One that takes steps along the sign of the gradient.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

    Attributes:
        loss_cap: Cross-entropy from which a target counts as lost; `None` if never.
    """

    loss_cap: float | None = None

    def __init__(
        self, *, step_size: float = 0.01, num_steps: int = 100, homophily: float = 0.0
    ) -> None:
        super().__init__(num_steps=num_steps, homophily=homophily)
        self.step_size = check_number(f"attacks.{self.name}.step_size", step_size, above=0)

    def ascend(
        self,
        problem: Problem,
        start: Float[Tensor, "k f"],
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        limits: tuple[float, float],
    ) -> Float[Tensor, "k f"]:
        """Raise the loss by the features of the newest nodes, clamped after each step.

        Args:
            problem: Whose loss.
            start: Features to start from.
            x: Features of all nodes but the newest.
            edge_index: Edges, those of the newest nodes included.
            limits: Smallest and largest feature.

        Raises:
            AttackError: There is no gradient, or it is not finite.
        """
        low, high = limits
        new, disguise = start.clamp(low, high), self.disguise(x, edge_index, start.size(0))
        old = FixedRows(x)
        # The sign of a NaN is 0, so each step is looked at; together, to wait for a GPU only once.
        finite = torch.ones((), dtype=torch.bool, device=x.device)
        for _ in range(self.num_steps):
            new.requires_grad_()
            loss = problem.loss(old.followed_by(new), edge_index, cap=self.loss_cap)
            slope = gradient(loss + disguise(new), new, attack=self.name, of="features")
            finite &= torch.isfinite(slope).all()
            new = (new.detach() + self.step_size * slope.sign()).clamp(low, high)
        check_finite(finite, attack=self.name, of="features")
        return new


def neighbourhood(
    x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], num_new: int
) -> Float[Tensor, "k f"]:
    """What the neighbours of each new node send it: r_u = sum over v of x_v / sqrt(d_u d_v).

    Reference: node-centric homophily, arXiv:2202.08057.

    Args:
        x: Features of the n old nodes.
        edge_index: Edges of all nodes, the new ones numbered from n; none joins two new nodes.
        num_new: Number of new nodes.
    """
    n = x.size(0)
    scale = degree(edge_index[0], n + num_new, dtype=x.dtype).clamp_min(1).rsqrt()
    src, dst = edge_index[:, edge_index[1] >= n]
    around = x.new_zeros(num_new, x.size(1))
    return around.index_add_(0, dst - n, (scale[src] * scale[dst])[:, None] * x[src])


def similarity(new: Float[Tensor, "k f"], around: Float[Tensor, "k f"]) -> Float[Tensor, " k"]:
    """Cosine similarity of each new node and its neighbourhood.

    A new node shorter than a tenth of its neighbourhood counts as that long: at 0, where SPEIT
    starts, the cosine's gradient is infinite, and one such step would stay in Adam's moments.
    """
    length = around.norm(dim=1).clamp_min(1e-12)
    squared, floor = new.square().sum(1), (0.1 * length).square()
    # Not the norm's own gradient, which does not exist at 0.
    own = torch.where(squared > floor, squared, floor).sqrt()
    scale: Tensor = own * length
    return (new * around).sum(1) / scale
