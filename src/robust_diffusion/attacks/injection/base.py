"""What injection attacks share: edges to targets, and gradient steps on the new features."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import Attack, Classifier, Kind, Need, PerturbedGraph, frozen
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.problem import Problem, check_finite, gradient
from robust_diffusion.attacks.rows import FixedRows
from robust_diffusion.checks import check_number, check_whole

DRAWN_AT_ONCE = 2**24
"""Most random numbers that are held at a time while targets are drawn."""


class InjectionAttack(Attack):
    """An attack that adds nodes, each with edges to target nodes."""

    kind: ClassVar[Kind] = "injection"

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Run the attack; see `Attack`."""
        budget.check_targets(target_nodes.numel())
        with frozen(model):
            problem = Problem(self.name, model, data, target_nodes)
            x, edge_index = problem.x, problem.edge_index
            if budget.max_injected_nodes:
                x, edge_index = self.inject(problem, budget, generator)
        return PerturbedGraph(x, edge_index, problem.x.size(0))

    @abstractmethod
    def inject(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]:
        """Features and edges of the graph with its new nodes, of which there is at least one."""


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


def draw_targets(
    targets: Int[Tensor, " t"], degrees: Sequence[int], generator: torch.Generator
) -> list[Int[Tensor, "_"]]:
    """Draw distinct targets uniformly for each new node.

    Args:
        targets: Nodes to draw from.
        degrees: How many each new node gets, at most t.
        generator: CPU generator.
    """
    t, most = targets.numel(), max(degrees, default=0)
    rows = []
    # Block by block, which draws the same numbers as all at once.
    block = max(1, DRAWN_AT_ONCE // t)
    for first in range(0, len(degrees), block):
        size = min(block, len(degrees) - first)
        drawn = torch.rand(size, t, generator=generator).argsort(1)[:, :most]
        rows += list(targets[drawn.to(targets.device)])
    return [row[:count] for row, count in zip(rows, degrees, strict=True)]


def small_normal(
    num_new: int, x: Float[Tensor, "n f"], limits: tuple[float, float], generator: torch.Generator
) -> Float[Tensor, "k f"]:
    """Normal features, their standard deviation a tenth of the limits' largest magnitude."""
    low, high = limits
    return torch.randn(num_new, x.size(1), generator=generator).to(x) * max(-low, high) / 10


def connect(
    edge_index: Int[Tensor, "2 e"], targets: Sequence[Int[Tensor, "_"]], first_new_node: int
) -> Int[Tensor, "2 e2"]:
    """Append undirected edges from each new node to its targets.

    Args:
        edge_index: Edges so far.
        targets: Target nodes of each new node, distinct for each; at least one new node.
        first_new_node: Number of the first new node; the others follow.
    """
    counts = torch.tensor([row.numel() for row in targets], device=edge_index.device)
    new = torch.arange(first_new_node, first_new_node + len(targets), device=edge_index.device)
    edges = torch.stack([new.repeat_interleave(counts), torch.cat(list(targets))])
    return torch.cat([edge_index, edges, edges.flip(0)], 1)


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
