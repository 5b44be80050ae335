"""Multi-layer perceptron, the control that no edge can hurt."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.operators import Graph, graph_with_degree


class MLP(LayerStack):
    """Multi-layer perceptron on each node's features alone: relu(X W + b) per layer.

    It sees no edge, so its accuracy is the same under every attack that leaves the target nodes'
    own features alone; a graph model is robust only where it stays above.

    Reference: of this project; the control of every graph model. Arguments as `GCN`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import MLP
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> MLP(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(self, *widths: Any, **options: Any) -> None:
        super().__init__(*widths, **options)
        self.stack(linear_layers(self.widths))

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """The layers see each node by itself, and no edge."""
        return lambda linear, x: linear(x)


class PropagatingMLP(MLP):
    """MLP whose predictions are then propagated along the edges; a subclass says how."""

    normalizes_by_degree = True

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node; `degree` as for `GCN`."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        return self.propagated(self.run(x, self.along(x, edge_index)), graph, degree)

    @abstractmethod
    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Logits by those that each node has of itself, along a graph with self-loops."""


def linear_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers between these widths, initialised as in GRB."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.xavier_normal_(linear.weight, gain=nn.init.calculate_gain("relu"))
        layers.append(linear)
    return layers
