"""What every attack is, and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.budget import InjectionBudget


@runtime_checkable
class Classifier(Protocol):
    """Anything that maps a graph to logits, differentiably in the features."""

    def __call__(self, x: Tensor, edge_index: Tensor, /) -> Tensor:
        """Logits of every node, n x C."""


@dataclass(frozen=True)
class SpentBudget:
    """What an attack used of its budget.

    Args:
        injected_nodes: Nodes injected.
        injected_edges: Undirected edges injected.
        max_edges_per_injected_node: Edges of the injected node that has most.
        feature_range: Smallest and largest injected feature value; `None` if no node is injected.
    """

    injected_nodes: int
    injected_edges: int
    max_edges_per_injected_node: int
    feature_range: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class PerturbedGraph:
    """An attacked graph; original nodes come first, injected nodes after them.

    Args:
        x: Features of original and injected nodes, normalised.
        edge_index: Edges, both directions, without self-loops or duplicates.
        num_original_nodes: Number of original nodes n.
    """

    x: Float[Tensor, "m f"]
    edge_index: Int[Tensor, "2 e"]
    num_original_nodes: int

    @property
    def spent(self) -> SpentBudget:
        """What was used, counted on the graph itself."""
        injected = self.x[self.num_original_nodes :]
        src = self.edge_index[0]
        count = torch.bincount(src, minlength=self.x.size(0))[self.num_original_nodes :]
        both_injected = (self.edge_index >= self.num_original_nodes).all(0).sum().item()
        return SpentBudget(
            injected_nodes=injected.size(0),
            injected_edges=int(count.sum().item() - both_injected // 2),
            max_edges_per_injected_node=int(count.max().item()) if injected.size(0) else 0,
            feature_range=(injected.min().item(), injected.max().item())
            if injected.numel()
            else None,
        )


class Attack(ABC):
    """An attack on the predictions for some target nodes of a graph.

    To add an attack, write one such class in `attacks/<kind>/<name>.py` and one
    `conf/attack/<name>.yaml`.
    """

    @abstractmethod
    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: InjectionBudget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Perturb the graph so that `model` errs on the target nodes.

        Neither `data` nor `model` is changed: not its weights, gradients or train mode.

        Args:
            model: The model under attack: a surrogate (black box) or the victim (white box).
            data: The clean graph: normalised x and edge_index.
            target_nodes: Nodes under attack.
            budget: What may be spent.
            generator: CPU generator of every random choice.

        Returns:
            The perturbed graph, within the budget.

        Raises:
            ConfigError: The target nodes cannot take the budget.
            AttackError: A gradient is not finite.
        """


@contextmanager
def frozen(model: Classifier) -> Iterator[None]:
    """Put a module in eval mode, its parameters without gradient, and restore both afterwards."""
    if not isinstance(model, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval()
    model.requires_grad_(requires_grad=False)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires_grad in gradients:
            parameter.requires_grad_(requires_grad)
