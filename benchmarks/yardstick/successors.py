"""HANG, HANG-quad, GREAD and FROND, computed as their public programs compute them.

Reference: github.com/zknus/NeurIPS-2023-HANG-Robustness, jeongwhanchoi/GREAD, zknus/ICLR2024-FROND;
read, not copied. The right-hand side differentiates energies by autograd, sums over edges gather
and scatter features, and past derivatives are stacked and weighted.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import softmax
from yardstick.straightforward import Attention, Flow


def spmm(weight: Tensor, z: Tensor, edge_index: Tensor) -> Tensor:
    """Sum the weighted features over incoming edges."""
    src, dst = edge_index
    return torch.zeros_like(z).index_add(0, dst, weight[:, None] * z[src])


def over_degrees(z: Tensor, edge_index: Tensor) -> Tensor:
    """Return D^{-1/2} (A + I) D^{-1/2} by edge."""
    weight: Tensor = gcn_norm(edge_index, num_nodes=z.size(0), dtype=z.dtype)[1]
    return weight


class EnergyFlow(Flow):
    """Hamilton's equations; autograd computes the gradient of the energy."""

    def energy(self, q: Tensor, p: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the energy of the whole graph."""
        raise NotImplementedError

    def forward(self, state: Tensor, edge_index: Tensor) -> Tensor:
        """Compute velocity and force."""
        gradient = torch.autograd.functional.jacobian(
            lambda at: self.energy(*at.chunk(2, 1), edge_index), state, create_graph=True
        )
        by_q, by_p = gradient.chunk(2, 1)
        return torch.hstack([by_p, -by_q])

    def solve(
        self, z: Tensor, edge_index: Tensor, method: str, options: dict[str, float]
    ) -> Tensor:
        """Return the positions at time 1."""
        return super().solve(torch.hstack([z, z]), edge_index, method, options)[:, : z.size(1)]


class Hang(EnergyFlow):
    """The energy is the norm of the output of two graph convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * channels, channels)
        self.outer = nn.Linear(channels, 1)

    def energy(self, q: Tensor, p: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the energy of the whole graph."""
        hidden = torch.hstack([q, p])
        for convolution, bend in ((self.inner, torch.tanh), (self.outer, torch.norm)):
            weight = over_degrees(q, edge_index)
            hidden = spmm(weight, hidden @ convolution.weight.T, edge_index) + convolution.bias
            hidden = bend(hidden)
        return hidden


class HangQuad(EnergyFlow):
    """The energy is tr(p^T A A p) / n plus the norm of a one-head GAT layer's output on q."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, channels)
        self.ends = nn.Parameter(torch.empty(2, channels))

    def energy(self, q: Tensor, p: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the energy of the whole graph."""
        weight, (src, dst) = over_degrees(q, edge_index), edge_index
        squared = spmm(weight, spmm(weight, p, edge_index), edge_index)
        projected = q @ self.linear.weight.T
        at_dst, at_src = (projected @ self.ends.T).unbind(1)
        attention = softmax(F.leaky_relu(at_dst[dst] + at_src[src], 0.2), dst, num_nodes=len(q))
        attended = spmm(attention, projected, edge_index) + self.linear.bias
        return torch.trace(p.T @ squared) / len(p) + attended.norm()


class Gread(Flow):
    """Reaction and diffusion of kind `bspm`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = Attention(channels, heads=4, attention_channels=64)
        self.raw_diffusion_rate = nn.Parameter(torch.zeros(channels))
        self.raw_reaction_rate = nn.Parameter(torch.zeros(channels))

    def forward(self, z: Tensor, edge_index: Tensor) -> Tensor:
        """Compute diffusion plus reaction."""
        attention = self.attention(z, edge_index)
        diffusion = spmm(attention, z, edge_index) - z
        reaction = -spmm(attention, diffusion, edge_index)
        rates = self.raw_diffusion_rate.sigmoid(), self.raw_reaction_rate.sigmoid()
        return rates[0] * diffusion + rates[1] * reaction


class Frond(Flow):
    """GRAND with a derivative of order 0.85, solved by the fractional Adams-Bashforth predictor."""

    order = 0.85

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = Attention(channels, heads=4, attention_channels=64)

    def forward(self, z: Tensor, edge_index: Tensor) -> Tensor:
        """Pull each node towards the weighted mean of its neighbours."""
        return spmm(self.attention(z, edge_index), z, edge_index) - z

    def solve(
        self, z: Tensor, edge_index: Tensor, method: str, options: dict[str, float]
    ) -> Tensor:
        """Return the features at time 1; each step weights all past derivatives."""
        length, past, state = options["step_size"], [], z
        for step in range(round(1 / length)):
            past.append(self(state, edge_index))
            ages = step + 1 - torch.arange(step + 1, dtype=z.dtype)
            shares = length**self.order / self.order * (ages**self.order - (ages - 1) ** self.order)
            weighed = torch.stack([share * f for share, f in zip(shares, past, strict=True)])
            state = z + weighed.sum(0) / math.gamma(self.order)
        return state


FLOWS = {"hang": Hang, "hang_quad": HangQuad, "gread": Gread, "frond": Frond}
"""Flows by the names that the package gives them."""
