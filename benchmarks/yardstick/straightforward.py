"""Diffusion in its most direct form: PyG's softmax, `index_add` and torchdiffeq.

The baseline for the package's speed. It shares no code with the package. Its parameters have the
same names, so both can load the same weights and must give the same results.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch_geometric.utils import add_remaining_self_loops, softmax
from torchdiffeq import odeint


class Attention(nn.Module):
    """Mean over heads of a scaled dot-product softmax over incoming edges."""

    def __init__(self, channels: int, heads: int, attention_channels: int) -> None:
        super().__init__()
        self.heads = heads
        self.key = nn.Linear(channels, attention_channels, bias=False)
        self.query = nn.Linear(channels, attention_channels, bias=False)
        parametrizations.spectral_norm(self.key)
        parametrizations.spectral_norm(self.query)

    def forward(self, z: Tensor, edge_index: Tensor) -> Tensor:
        """Return the attention of each edge."""
        src, dst = edge_index
        key = self.key(z).view(z.size(0), self.heads, -1)
        query = self.query(z).view(z.size(0), self.heads, -1)
        scores = (key[dst] * query[src]).sum(-1) / math.sqrt(key.size(-1))
        return softmax(scores, dst, num_nodes=z.size(0)).mean(1)


class Flow(nn.Module):
    """Right-hand side that torchdiffeq integrates over [0, 1]."""

    def solve(
        self, z: Tensor, edge_index: Tensor, method: str, options: dict[str, float]
    ) -> Tensor:
        """Return the features at time 1; the state is the features."""
        times = torch.tensor([0.0, 1.0], dtype=z.dtype, device=z.device)
        if step_size := options.get("step_size"):
            options = {"options": {"step_size": step_size}}  # type: ignore[dict-item]
        states = odeint(lambda _, x: self(x, edge_index), z, times, method=method, **options)
        return states[-1]


class BeltramiFlow(Flow):
    """dZ/dt = (A * B - Psi) Z, B = softmax(1 / g_u^2 + 1 / (g_u g_v))."""

    def __init__(self, channels: int, heads: int, attention_channels: int, floor: float) -> None:
        super().__init__()
        self.attention = Attention(channels, heads, attention_channels)
        self.floor = floor

    def forward(self, z: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the time derivative of the features."""
        src, dst = edge_index
        attention = self.attention(z, edge_index)
        difference = z[src] - z[dst]
        squared = attention * difference.square().sum(-1)
        norm = (squared.new_zeros(z.size(0)).index_add(0, dst, squared) + self.floor).sqrt()
        scores = 1 / norm[dst].square() + 1 / (norm[dst] * norm[src])
        weight = attention * softmax(scores, dst, num_nodes=z.size(0))
        return torch.zeros_like(z).index_add(0, dst, weight[:, None] * difference)


class Layer(nn.Module):
    """LayerNorm, Linear, diffusion on [0, 1]."""

    def __init__(
        self,
        before: int,
        after: int,
        flow: Callable[[int], Flow],
        method: str,
        options: dict[str, float],
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(before)
        self.linear = nn.Linear(before, after)
        self.flow = flow(after)
        self.method = method
        self.options = options

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Transform the features, then diffuse them."""
        z = self.linear(self.norm(x))
        return self.flow.solve(z, edge_index, self.method, self.options)


class Net(nn.Module):
    """Stacked layers with ReLU and dropout between them.

    Args:
        widths: Widths of the input, of each hidden layer, and of the logits.
        flow: Builds the right-hand side of a layer from its width.
        method: Method of torchdiffeq; fixed-step methods take one step by default.
        options: Tolerances of an adaptive method, or `step_size`.
    """

    def __init__(
        self,
        widths: list[int],
        flow: Callable[[int], Flow],
        method: str,
        **options: float,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(before, after, flow, method, options) for before, after in pairwise(widths)
        )
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the class logits of each node."""
        edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=x.size(0))
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(x, edge_index)))
        return self.layers[-1](x, edge_index)
