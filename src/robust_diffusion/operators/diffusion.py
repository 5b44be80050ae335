"""Attention, and diffusion by attention times edge modulation, as differentiable functions."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.edges import edge_dot, row_softmax
from robust_diffusion.operators.graph import EdgeValues, Graph, NodeSignal
from robust_diffusion.operators.kernels import Attended, Diffused, Kernels, Modulation, kernels_for

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
        """Project every node to keys and queries by one product, [n, 2, h, c] or heads last."""
        matrix = self.matrix.transpose(1, 2) if heads_last else self.matrix
        shape = matrix.shape[:3]
        matrix = matrix.flatten(0, 2)
        # The last layer is only as wide as the number of classes. Products of such narrow matrices,
        # forward and backward together, take three times as long as at this width.
        if (missing := _NARROW - z.size(1)) > 0:
            z, matrix = F.pad(z, (0, missing)), F.pad(matrix, (0, missing))
        projected = F.linear(z, matrix).view(-1, *shape)
        if self.key_bias is None:
            return projected.expand(-1, 2, -1, -1)
        bias = self.key_bias.T if heads_last else self.key_bias
        return torch.cat([projected[:, :1] + bias, projected[:, -1:]], 1)


def edge_attention(z: NodeSignal, weights: HeadWeights, graph: Graph) -> EdgeValues:
    r"""Return the mean over heads of a softmax over incoming edges, weighted by the edges' weights.

    .. math:: w_h([u, v]) = \mathrm{softmax}_v \langle W_K z_u, W_Q z_v \rangle / \sqrt{d_K}

    It sums to 1 over the edges arriving at u, and is differentiable in the edges' weights.
    """
    kernels = kernels_for(z, weights.matrix, graph.full_weight, heads=weights.count)
    if kernels is None:
        key, query = weights.project(z).unbind(1)
        scores = edge_dot(key, query, graph) / math.sqrt(key.size(2))
        return row_softmax(scores, graph).mean(1)
    projected = weights.project(z, heads_last=kernels.heads_last)
    return _EdgeAttention.apply(projected, graph.full_weight, graph, kernels)  # type: ignore[no-any-return, no-untyped-call]


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


def edge_modulation(scores: EdgeValues, graph: Graph) -> EdgeValues:
    r"""Return a softmax over incoming edges as a factor of attention that has counted the weights.

    .. math:: B_{uv} = \frac{\max(w_{uv}, 1) \exp s_{uv}}{\sum_{v'} w_{uv'} \exp s_{uv'}}

    At weights of 0 and 1, A * B is the product of two softmaxes. A weight in between is the share
    of the edge that exists, and scales A * B once: if both numerators counted it, an edge of weight
    0 would have a gradient of 0. A weight above 1 is emphasis, such as GNNGuard's, in A and in B.

    Args:
        scores: One score s per edge.
        graph: The edges; differentiable in their weights w.

    Returns:
        B, positive; its sum over the edges arriving at a node, each times min(w, 1), is 1.
    """
    relative = row_softmax(scores[:, None], graph, relative=True).squeeze(1)
    if graph.weight is None:
        return relative
    # The gradient of clamp_min(1) at weight 1 is that of weights above 1, not below.
    return torch.where(graph.weight <= 1, 1.0, graph.weight) * relative


def modulated_diffusion(
    z: NodeSignal,
    weights: HeadWeights,
    graph: Graph,
    modulation: Modulation,
    kernels: Kernels,
) -> NodeSignal:
    r"""Return the right-hand side of the Beltrami, mean curvature and p-Laplacian flows.

    .. math:: \sum_v A_{uv} B_{uv} (z_v - z_u)

    with A the attention, B the `edge_modulation` of scores g_u^left g_v^right, and g the gradient
    norm under A. For the backward pass it saves tensors of n x d and of e entries, never of e x d.

    Differentiable in the features, in W_K and W_Q, and in the edge weights.
    """
    projected = weights.project(z, heads_last=kernels.heads_last)
    return _ModulatedDiffusion.apply(z, projected, graph.full_weight, graph, modulation, kernels)  # type: ignore[no-any-return, no-untyped-call]


class _ModulatedDiffusion(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        projected: Tensor,
        weight: Tensor,
        graph: Graph,
        modulation: Modulation,
        kernels: Kernels,
    ) -> Tensor:
        z, projected, weight = z.contiguous(), projected.contiguous(), weight.contiguous()
        out, diffused = kernels.diffuse(z, projected, weight, graph, modulation)
        attended = diffused.attended.attention, diffused.attended.relative
        rest = diffused.difference, diffused.norm, diffused.relative
        ctx.save_for_backward(z, projected, weight, *attended, *rest)
        ctx.graph, ctx.modulation, ctx.kernels = graph, modulation, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        z, projected, weight, attention, relative, *rest = ctx.saved_tensors
        attended = Attended(projected, weight, ctx.graph, attention, relative)
        gradients = ctx.kernels.diffuse_backward(
            grad.contiguous(),
            Diffused(attended, z, ctx.modulation, *rest),
            with_weight=ctx.needs_input_grad[2],
        )
        return *gradients, None, None, None
