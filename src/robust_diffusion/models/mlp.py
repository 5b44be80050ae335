"""Multi-layer perceptron, the control that no edge can hurt."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from robust_diffusion.checks import Count, Layers, Probability, Width
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.models.widths import layer_widths


class MLP(LayerStack):
    """Multi-layer perceptron on each node's features alone: relu(X W + b) per layer.

    It sees no edge, so its accuracy is the same under every attack that leaves the target nodes'
    own features alone; a graph model is robust only where it stays above.

    Arguments as `GCN`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import MLP
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> MLP(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        out_channels: Count,
        *,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(linear_layers(widths), widths[:-1], layer_norm=layer_norm, dropout=dropout)

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
