"""What injection attacks share: edges to targets, and gradient steps on the new features."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Attack, Classifier
from robust_diffusion.checks import check_number, check_whole
from robust_diffusion.errors import AttackError


class FeatureOptimizingAttack(Attack):
    """An injection attack that finds the new nodes' features by Adam.

    Args:
        learning_rate: Adam's, positive.
        num_steps: Gradient steps on the features, at least 0.

    Raises:
        ConfigError: A number out of range.
    """

    name: str

    def __init__(self, *, learning_rate: float = 0.01, num_steps: int = 100) -> None:
        self.learning_rate = check_number(
            f"attacks.{self.name}.learning_rate", learning_rate, above=0
        )
        self.num_steps = check_whole(f"attacks.{self.name}.num_steps", num_steps, at_least=0)

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
            AttackError: The gradient is not finite.
        """
        free = free.clone().requires_grad_()
        optimizer = torch.optim.Adam([free], lr=self.learning_rate)
        for step in range(self.num_steps):
            (gradient,) = torch.autograd.grad(loss(free), free)
            free.grad = gradient
            optimizer.step()
            if project is not None:
                with torch.no_grad():
                    free.copy_(project(free))
            # Adam's moments keep a NaN for good, so the last step tells of every step before it.
            if step == self.num_steps - 1 and not torch.isfinite(free).all():
                raise AttackError(
                    f"attack={self.name}: the gradient with respect to the injected features is "
                    "not finite; check the attacked model"
                )
        return free.detach()


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


def predicted_labels(model: Classifier, x: Tensor, edge_index: Tensor) -> Int[Tensor, " n"]:
    """Classes that the model predicts, without gradient."""
    with torch.no_grad():
        return model(x, edge_index).argmax(1)
