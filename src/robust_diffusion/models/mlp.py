"""Multi-layer perceptron, the control that no edge can hurt."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from robust_diffusion.models.stack import Apply, LayerStack


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


def linear_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Linear layers between these widths, initialised as in GRB."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.xavier_normal_(linear.weight, gain=nn.init.calculate_gain("relu"))
        layers.append(linear)
    return layers
