"""Base of all attacks, and the perturbed graph that they return."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.problem import Classifier as Classifier
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.problem import clean_graph as clean_graph
from robust_diffusion.checks import validated
from robust_diffusion.models.checked import frozen as frozen

FeaturesAndEdges = tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]
"""Features and edges."""

Kind = Literal["injection", "modification"]
Need = Literal["predictions", "feature_gradient", "edge_gradient"]
Waivable = Literal["epsilon", "edge_ratio"]
"""Limits of a budget that a published reading of some attack does not keep."""


@dataclass(frozen=True)
class SpentBudget:
    """Budget that an attack used; edges are undirected.

    Args:
        injected_nodes: Nodes injected.
        injected_edges: Edges with an injected end.
        max_edges_per_injected_node: Edges of the injected node that has most.
        feature_range: Smallest and largest injected feature value; `None` if no node is injected.
        added_edges: Edges between original nodes that were not there before.
        removed_edges: Edges between original nodes that are gone.
        changed_nodes: Original nodes with a changed feature.
        largest_feature_change: Largest change of one feature of an original node.

    Examples:
        >>> from robust_diffusion import Budget, RandomInjection, MLP, evaluate
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> report = evaluate(MLP(8, 8, 7), data, budget=Budget(2, 3), attacks="random")
        >>> spent = report["random"].spent
        >>> spent.injected_nodes, spent.injected_edges
        (2, 6)
    """

    injected_nodes: int
    injected_edges: int
    max_edges_per_injected_node: int
    feature_range: tuple[float, float] | None
    added_edges: int = 0
    removed_edges: int = 0
    changed_nodes: int = 0
    largest_feature_change: float = 0.0


@dataclass(frozen=True, eq=False)
class PerturbedGraph:
    """An attacked graph; original nodes come first, injected nodes after them.

    Args:
        x: Features of original and injected nodes, normalised.
        edge_index: Edges, both directions, without self-loops or duplicates.
        num_original_nodes: Number of original nodes n.
        part_accuracy: Of an attack of several parts, the accuracy of the attacked model at the
            targets that each part reached, in 0..1, in the order in which they ran.
        part: The part that made this graph; "" if the attack has none.
        given_up: Why, by part, of the parts that could not be run.
        clean: The graph before the attack, from which `to_data` takes labels and masks; attacks
            leave it to their caller.

    Examples:
        >>> import torch
        >>> from robust_diffusion import PerturbedGraph
        >>> edge_index = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 2]])
        >>> graph = PerturbedGraph(torch.zeros(3, 5), edge_index, num_original_nodes=2)
        >>> graph.to_data().injected_mask.tolist()
        [False, False, True]
    """

    x: Float[Tensor, "m f"]
    edge_index: Int[Tensor, "2 e"]
    num_original_nodes: int
    part_accuracy: Mapping[str, float] = field(default_factory=dict)
    part: str = ""
    given_up: Mapping[str, str] = field(default_factory=dict)
    clean: Data | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Its size, without the tensors."""
        n, edges = self.num_original_nodes, self.edge_index.size(1) // 2
        return f"PerturbedGraph({n} + {self.x.size(0) - n} nodes, {edges} edges)"

    def to_data(self) -> Data:
        """The attacked graph as PyG has it, on the CPU.

        Returns:
            `Data` with x, edge_index and `injected_mask`; and if `clean` is known y, in which an
            injected node has -1, its masks, in which an injected node is false, and its index sets.
        """
        n, x = self.num_original_nodes, self.x.cpu()
        new = x.size(0) - n
        data = Data(x=x, edge_index=self.edge_index.cpu())
        data.injected_mask = torch.arange(x.size(0)) >= n
        for key, value in ({} if self.clean is None else self.clean.to_dict()).items():
            if not isinstance(value, Tensor) or key in data:
                continue
            value = value.detach().cpu()
            if key == "y":
                data.y = torch.cat([value, value.new_full((new, *value.shape[1:]), -1)])
            elif key.endswith("mask") and value.dtype == torch.bool and value.size(0) == n:
                data[key] = torch.cat([value, value.new_zeros(new, *value.shape[1:])])
            elif key.endswith("_idx") or key.startswith("index_"):
                data[key] = value
        return data


def spent_budget(clean: Data, perturbed: PerturbedGraph) -> SpentBudget:
    """Budget used, counted on the two graphs themselves, the clean one undirected and simple."""
    x, edge_index = clean_graph(clean)
    n, edges = perturbed.num_original_nodes, perturbed.edge_index
    injected = perturbed.x[n:]
    inside = (edges < n).all(0)
    degrees = torch.bincount(edges[0], minlength=perturbed.x.size(0))[n:]
    before, after = (undirected_edge_numbers(e, n) for e in (edge_index, edges[:, inside]))
    change = (perturbed.x[:n] - x).abs()
    return SpentBudget(
        injected_nodes=injected.size(0),
        injected_edges=int((~inside).sum().item()) // 2,
        max_edges_per_injected_node=int(degrees.max().item()) if injected.size(0) else 0,
        feature_range=(injected.min().item(), injected.max().item()) if injected.numel() else None,
        added_edges=int((~torch.isin(after, before)).sum().item()),
        removed_edges=int((~torch.isin(before, after)).sum().item()),
        changed_nodes=int(change.any(1).sum().item()),
        largest_feature_change=change.max().item() if change.numel() else 0.0,
    )


def undirected_edge_numbers(edge_index: Int[Tensor, "2 e"], num_nodes: int) -> Int[Tensor, " u"]:
    """One number u n + v for each undirected edge u < v, ascending."""
    src, dst = edge_index
    upper = src < dst
    ids: Tensor = src[upper] * num_nodes + dst[upper]
    return ids.sort().values


class Attack(ABC):
    """An attack on the predictions for some target nodes of a graph.

    To add an attack, write one such class in `attacks/<kind>/<name>.py` and one
    `conf/attack/<name>.yaml`.

    Attributes:
        name: Of the configuration and of messages.
        kind: `injection` adds nodes and leaves the others alone; `modification` changes features
            of target nodes and edges that touch one.
        needs: What the attack asks of the model: predictions, a gradient with respect to the
            features or to the edge weights.
        is_worst_case: The attack measures how far a model can be brought down at all. It is
            passed the true classes under every threat model.
        changes_features: A modification that may also change features, within
            `budget.node_ratio`; the others flip edges alone.

    Examples:
        >>> from robust_diffusion import GCN, PGD, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> attack(GCN(8, 8, 7), data, Budget(2, 3), PGD(num_steps=2))
        PerturbedGraph(100 + 2 nodes, 166 edges)
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})
    is_worst_case: ClassVar[bool] = False
    changes_features: ClassVar[bool] = True
    version: ClassVar[int] = 1  # raised when the attack computes something else

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the arguments of every attack by their annotations."""
        super().__init_subclass__(**options)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__.lower()
        validated("attacks.{self.name}")(cls)

    @property
    def unbounded(self) -> Mapping[Waivable, str]:
        """Limits that the attack by its definition does not keep -> the reading that says so.

        What it spends is counted and recorded all the same, but is no breach of these limits.
        """
        return {}

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: Generator,
    ) -> PerturbedGraph:
        """Perturb the graph so that `model` errs on the target nodes.

        Neither `data` nor `model` is changed: not its weights, gradients or train mode.

        Args:
            model: The model under attack: a surrogate (black box) or the victim (white box).
            data: The clean graph: normalised x and edge_index; with y, the attack uses these
                labels and not the model's predictions; with index_train, which who poisons it
                knows, a model will be trained on these nodes of the result.
            target_nodes: Nodes under attack.
            budget: What may be spent.
            generator: CPU generator of every random choice.

        Returns:
            The perturbed graph, within the budget but for what `unbounded` names.

        Raises:
            ConfigError: The target nodes cannot take the budget.
            AttackError: The model does not fit the graph, cannot be differentiated as the attack
                needs, or has a gradient that is not finite.
        """
        budget = budget.within(target_nodes.numel())
        with frozen(model):
            problem = Problem(self.name, model, data, target_nodes)
            x, edge_index = self.perturb(problem, budget, generator)
        return PerturbedGraph(x, edge_index, problem.x.size(0))

    def perturb(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Features and edges of the attacked graph; the model is frozen meanwhile."""
        raise NotImplementedError
