"""Dot-product attention over the edges that arrive at a node, in one differentiable function."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.edges import edge_dot, edge_softmax
from robust_diffusion.operators.graph import EdgeValues, Graph, NodeSignal
from robust_diffusion.operators.kernels import Attended, Kernels, kernels_for

_NARROW = 16
"""Width below which features are filled up with zeros before they are projected."""


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """Matrices W_K and W_Q of all heads."""

    matrix: Float[Tensor, "k h c d"]  # W_K and W_Q, or one matrix that is both
    key_bias: Float[Tensor, "h c"] | None = None  # added to the keys

    @property
    def count(self) -> int:
        """Number of heads h."""
        return self.matrix.size(1)

    def project(self, z: NodeSignal, *, heads_last: bool = False) -> Float[Tensor, "n 2 x y"]:
        """Keys and queries of every node by one product, [n, 2, h, c] or heads last."""
        matrix = self.matrix.transpose(1, 2) if heads_last else self.matrix
        shape = matrix.shape[:3]
        matrix = matrix.flatten(0, 2)
        # The last layer is as wide as there are classes. Products of matrices that narrow, forward
        # and backward together, take three times as long as at this width.
        if (missing := _NARROW - z.size(1)) > 0:
            z, matrix = F.pad(z, (0, missing)), F.pad(matrix, (0, missing))
        projected = F.linear(z, matrix).view(-1, *shape)
        if self.key_bias is None:
            return projected.expand(-1, 2, -1, -1)
        bias = self.key_bias.T if heads_last else self.key_bias
        return torch.cat([projected[:, :1] + bias, projected[:, -1:]], 1)


def edge_attention(z: NodeSignal, weights: HeadWeights, graph: Graph) -> EdgeValues:
    r"""Mean over heads of a softmax over incoming edges, each counted by its weight.

    .. math:: w_h([u, v]) = \mathrm{softmax}_v \langle W_K z_u, W_Q z_v \rangle / \sqrt{d_K}

    It sums to 1 over the edges arriving at u, and is differentiable in the edges' weights.
    """
    kernels = kernels_for(z, weights.matrix, graph.weight, heads=weights.count)
    if kernels is None:
        key, query = weights.project(z).unbind(1)
        scores = edge_dot(key, query, graph) / math.sqrt(key.size(2))
        return edge_softmax(scores, graph).mean(1)
    projected = weights.project(z, heads_last=kernels.heads_last)
    return _EdgeAttention.apply(projected, graph.weight, graph, kernels)  # type: ignore[no-any-return, no-untyped-call]


class _EdgeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, weight: Tensor, graph: Graph, kernels: Kernels
    ) -> Tensor:
        projected, weight = projected.contiguous(), weight.contiguous()
        attended = kernels.attend(projected, weight, graph)
        ctx.save_for_backward(projected, weight, attended.attention, attended.relative)
        ctx.graph, ctx.kernels = graph, kernels
        return attended.attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        projected, weight, *saved = ctx.saved_tensors
        attended = Attended(projected, weight, ctx.graph, *saved)
        gradients = ctx.kernels.attend_backward(
            grad.contiguous(), attended, with_weight=ctx.needs_input_grad[1]
        )
        return *gradients, None, None
