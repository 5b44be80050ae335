"""GRBCD as a poisoning attack, with the gradient through the training of the attacked model."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.func import functional_call

from robust_diffusion.attacks.base import FeaturesAndEdges, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import edges_at, glorot, trained_on
from robust_diffusion.attacks.modification.prbcd import GRBCD, GRBCDAtTargets, Loss
from robust_diffusion.checks import Count, Positive, SomeSteps, validated
from robust_diffusion.errors import AttackError
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.modules import copy_of
from robust_diffusion.models.victim import Passes, Traits
from robust_diffusion.operators import backend_set

DECAY = (0.9, 0.999)
"""Decay rates of Adam's means of the gradient and of its square."""

_TINY = 1e-16
"""Added to the mean square, whose root has no finite gradient at 0."""


class _WithEdges(GRBCDAtTargets):
    """PyG's GRBCD whose blocks also hold every edge at a target, which random pairs rarely hit."""

    block_edge_index: Tensor
    num_nodes: int

    def _sample_random_block(self, budget: int = 0) -> None:
        super()._sample_random_block(budget)
        targets = self.pairs.targets.to(self.edge_index.device)
        there = edges_at(targets, self.edge_index, self.num_nodes)
        block = torch.cat([self.block_edge_index, there.to(self.device)], 1).sort(0).values
        self.block_edge_index = torch.unique(block, dim=1)
        self.current_block = torch.arange(self.block_edge_index.size(1), device=self.device)
        self.block_edge_weight = torch.full_like(
            self.current_block, self.coeffs["eps"], dtype=torch.float32
        )


@validated("attacks.{self.name}")
class MetaGRBCD(GRBCD):
    """GRBCD on a model that is retrained in every step, to poison a model's training.

    Each step draws the model's matrices again, trains it for some epochs of Adam on the graph so
    far, and computes the gradient of the loss at the nodes that are not trained on, through all of
    that training. It then flips the pairs that raise this loss most, among the edges at targets and
    a random block of pairs. The attack is adaptive: the model may be the attacked one, including a
    flow, which then runs with `backend=torch` and direct differentiation.

    The train nodes are `graph.index_train`, which `threat=poisoning` sets, or all nodes except the
    targets if it is missing. The classes are those of `task.labels`.

    Reference: Zügner and Günnemann 2019, arXiv:1902.08412, through any model as Mujkanovic et al.
    2022, arXiv:2301.13694, on the blocks of GRBCD, Geisler et al. 2021, arXiv:2110.14038.

    Args:
        num_epochs: Epochs of each training, at least 1. Memory grows with it.
        training_rate: Adam's learning rate in each training, above 0.
        block_size: Pairs drawn at a time in addition to the edges, at least 1. Memory grows with
            it.
        num_steps: Steps, at least 1; the attack takes at most one step per flip.
        loss: Loss that the flips raise; see `GRBCD`.

    Deviation: Vectors and scalars, such as biases, start with the values of the passed model.

    Examples:
        >>> from robust_diffusion.attacks import MetaGRBCD
        >>> MetaGRBCD(num_steps=2).kind
        'modification'
    """

    name = "meta_grbcd"
    implementation: ClassVar[Any] = _WithEdges

    def __init__(
        self,
        *,
        num_epochs: SomeSteps = 10,
        training_rate: Positive = 0.01,
        block_size: Count = 20_000,
        num_steps: SomeSteps = 125,
        loss: Loss = "tanh_margin",
    ) -> None:
        super().__init__(block_size=block_size, num_steps=num_steps, loss=loss)
        self.num_epochs = num_epochs
        self.training_rate = training_rate

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """See `Attack`; each step retrains the model."""
        return self.num_steps * (self.num_epochs + 1)

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Run GRBCD through the training of the model."""
        if not isinstance(victim.model, nn.Module) or not victim.takes_weights:
            raise AttackError("the model takes no edge weights; attack a surrogate that does")
        options = self.num_epochs, self.training_rate, generator
        labels, train = task.all_labels, trained_on(task)
        trained = Trained(victim.as_module(), labels, train, *options, victim.passes)
        traits = Traits(in_package=True)  # whatever is odd about the model is handled inside
        form = Victim(trained, victim.x, victim.edge_index, traits, passes=victim.passes)
        return super().modify(form, task, budget, generator)

    def scored(self, task: Task) -> Int[Tensor, " s"]:
        """Return the nodes that are not trained on."""
        return (~trained_on(task)).nonzero().squeeze(1)


class Trained(nn.Module):
    """A model that each call trains on the graph it receives, differentiable through training.

    The training runs Adam for some epochs, from matrices that the generator draws.
    """

    def __init__(
        self,
        model: nn.Module,
        labels: Int[Tensor, " n"],
        train: Bool[Tensor, " n"],
        num_epochs: int,
        learning_rate: float,
        generator: Generator,
        passes: Passes | None = None,
    ) -> None:
        super().__init__()
        self.generator, self.passes = generator, passes or Passes()
        self.model = adaptive_form(copy_of(model)).eval()  # it is differentiated directly
        self.labels, self.train_mask = labels, train
        self.num_epochs, self.learning_rate = num_epochs, learning_rate

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "n c"]:
        """Return the logits after training."""
        weighs = edge_weight is not None and edge_weight.requires_grad and torch.is_grad_enabled()
        known = self.train_mask
        with torch.enable_grad(), backend_set("torch"):
            now = self._drawn()
            mean = {name: torch.zeros_like(p) for name, p in now.items()}
            square = dict(mean)
            for epoch in range(1, self.num_epochs + 1):
                reached = functional_call(self.model, now, (x, edge_index, edge_weight))
                self.passes.count += 1
                loss = F.cross_entropy(reached[known], self.labels[known])
                slopes = torch.autograd.grad(
                    loss, [*now.values()], create_graph=weighs, materialize_grads=True
                )
                for (name, p), slope in zip([*now.items()], slopes, strict=True):
                    mean[name] = torch.lerp(slope, mean[name], DECAY[0])
                    square[name] = torch.lerp(slope.square(), square[name], DECAY[1])
                    root = (square[name] / (1 - DECAY[1] ** epoch) + _TINY).sqrt()
                    step = self.learning_rate * mean[name] / (1 - DECAY[0] ** epoch) / root
                    now[name] = p - step if weighs else (p - step).detach().requires_grad_()
            logits: Tensor = functional_call(self.model, now, (x, edge_index, edge_weight))
        return logits if weighs else logits.detach()

    def _drawn(self) -> dict[str, Tensor]:
        """Return the parameters before training: matrices by Glorot's rule, others unchanged."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(glorot(parameter.shape, self.generator))
            for module in self.model.modules():
                for normed in getattr(module, "parametrizations", {}).values():
                    if not hasattr(normed[0], "_u"):  # no spectral norm
                        continue
                    # A spectral norm divides by the singular value that u and v estimate.
                    u, _, v = torch.linalg.svd(normed.original)
                    normed[0]._u.copy_(u[:, 0])
                    normed[0]._v.copy_(v[0])
        return {name: p.detach().requires_grad_() for name, p in self.model.named_parameters()}
