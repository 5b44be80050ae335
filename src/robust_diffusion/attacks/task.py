"""A task: all that an attack may know about a graph and its goal."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.errors import ConfigError

if TYPE_CHECKING:
    from robust_diffusion.models.victim import Victim

Knowledge = Literal["predictions", "labels"]
"""Classes that an attacker uses: those that the attacked model predicts, or the true ones."""


def accuracy(predicted: Any, labels: Any) -> float:
    """Compute the share of correctly classified nodes, in 0..1, of tensors or arrays."""
    return int((predicted == labels).sum()) / max(len(labels), 1)


@dataclass(frozen=True, eq=False)
class Task:
    """A clean graph, its target nodes, and the classes that an attack drives them away from.

    Args:
        graph: The clean graph, with x and edge_index. That of a poisoning attack also has
            index_train, the nodes that the model will be trained on.
        targets: Nodes under attack.
        all_labels: Class of every node: of an attacker, what the attacker believes it is; of an
            evaluation, the true class, or -1 if it is unknown.
        seed: Seed of attacks, and of models that sample.
        poisons: Whether models are trained on the attacked graph.

    Raises:
        ConfigError: `targets` is a boolean mask, whose values would be read as nodes 0 and 1.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from robust_diffusion.attacks import Task
        >>> graph = Data(x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> task = Task(graph, torch.tensor([1]), torch.tensor([0, 1]))
        >>> task.accuracy(torch.eye(2))
        1.0
    """

    graph: Data
    targets: Int[Tensor, " t"]
    all_labels: Int[Tensor, " n"]
    seed: int = 0
    poisons: bool = False

    def __post_init__(self) -> None:
        """Reject a boolean mask."""
        if self.targets.dtype == torch.bool:
            raise ConfigError(
                "target nodes: expected node numbers, got a boolean mask; use "
                "mask.nonzero().flatten()"
            )

    @property
    def x(self) -> Float[Tensor, "n f"]:
        """Clean features."""
        x: Tensor = self.graph["x"]
        return x

    @property
    def edge_index(self) -> Int[Tensor, "2 e"]:
        """Clean edges."""
        edge_index: Tensor = self.graph["edge_index"]
        return edge_index

    @property
    def labels(self) -> Int[Tensor, " t"]:
        """Classes of the targets."""
        return self.all_labels[self.targets]

    @property
    def reach(self) -> Int[Tensor, " r"]:
        """Nodes at which a modification may change the graph: the targets, or all if poisoning."""
        return torch.arange(self.graph.num_nodes) if self.poisons else self.targets

    def right(self, logits: Float[Tensor, "m c"]) -> int:
        """Count the correctly classified targets, from the logits of all nodes."""
        return int((logits[self.targets].argmax(1) == self.labels).sum())

    def accuracy(self, logits: Float[Tensor, "m c"]) -> float:
        """Return the share of correct targets, in 0..1, from the logits of all nodes."""
        return self.share(logits[self.targets])

    def share(self, logits: Float[Tensor, "t c"]) -> float:
        """Return the share of correct targets, in 0..1, from their logits."""
        return accuracy(logits.argmax(1), self.labels)

    def loss(self, logits: Float[Tensor, "m c"], *, cap: float | None = None) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the targets; `cap` limits that of each target."""
        if cap is None:
            return F.cross_entropy(logits[self.targets], self.labels)
        losses = F.cross_entropy(logits[self.targets], self.labels, reduction="none")
        return losses.clamp_max(cap).mean()

    def attacker_view(self, victim: "Victim", attacker_knows: Knowledge) -> "Task":
        """Return what the attacker of a victim knows, on the victim's device, as a copy.

        This is the graph and the classes that the attacker knows. A poisoning attacker also knows
        those of the train nodes.
        """
        y = self.all_labels
        known = (y >= 0) & (attacker_knows == "labels")
        graph = Data(x=self.x.clone(), edge_index=self.edge_index.clone())
        if self.poisons:
            graph.index_train = self.graph["index_train"].clone()
            known |= torch.isin(self.reach, graph.index_train)
        labels = torch.where(known, y, victim.clean_predictions(self.seed).argmax(1))
        device = victim.device
        reach = self.reach.clone().to(device)
        return Task(graph.to(device), reach, labels.to(device), self.seed, self.poisons)
