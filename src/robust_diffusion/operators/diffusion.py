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

    def project(
        self, z: NodeSignal, *, heads_last: bool = False
    ) -> tuple[Float[Tensor, "n k x y"], Float[Tensor, "x y"] | None]:
        """Project every node by one product, [n, k, h, c] or heads last; return the bias, too."""
        matrix = self.matrix.transpose(1, 2) if heads_last else self.matrix
        shape = matrix.shape[:3]
        matrix = matrix.flatten(0, 2)
        # The last layer is only as wide as the number of classes. Products of such narrow matrices,
        # forward and backward together, take three times as long as at this width.
        if (missing := _NARROW - z.size(1)) > 0:
            z, matrix = F.pad(z, (0, missing)), F.pad(matrix, (0, missing))
        bias = self.key_bias.T if heads_last and self.key_bias is not None else self.key_bias
        return F.linear(z, matrix).view(-1, *shape), bias


def edge_attention(z: NodeSignal, weights: HeadWeights, graph: Graph) -> EdgeValues:
    r"""Return the mean over heads of a softmax over incoming edges, weighted by the edges' weights.

    .. math:: w_h([u, v]) = \mathrm{softmax}_v \langle W_K z_u, W_Q z_v \rangle / \sqrt{d_K}

    It sums to 1 over the edges arriving at u, and is differentiable in the edges' weights.
    """
    kernels = kernels_for(z, weights.matrix, graph.full_weight, heads=weights.count)
    if kernels is None:
        projected, bias = weights.project(z)
        ends = projected.unbind(1)
        key, query = ends[0], ends[-1]
        key = key if bias is None else key + bias
        scores = edge_dot(key, query, graph) / math.sqrt(key.size(2))
        return row_softmax(scores, graph).mean(1)
    sides = weights.project(z, heads_last=kernels.heads_last)
    return _EdgeAttention.apply(*sides, graph.full_weight, graph, kernels)  # type: ignore[no-any-return, no-untyped-call]


def _sides_backward(
    d_sides: Float[Tensor, "n 2 x y"], matrices: int, *, with_bias: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients by projections and bias from those by keys and queries."""
    d_projected = d_sides[:, :1] + d_sides[:, 1:] if matrices == 1 else d_sides
    return d_projected, d_sides[:, 0].sum(0) if with_bias else None


class _EdgeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        graph: Graph,
        kernels: Kernels,
    ) -> Tensor:
        projected, weight = projected.contiguous(), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        attended = kernels.attend(projected, bias, weight, graph)
        ctx.save_for_backward(projected, bias, weight, attended.attention, attended.relative)
        ctx.graph, ctx.kernels = graph, kernels
        return attended.attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        projected, bias, weight, *saved = ctx.saved_tensors
        _, of_bias, of_weight, *_ = ctx.needs_input_grad
        attended = Attended(projected, bias, weight, ctx.graph, *saved)
        d_sides, d_weight = ctx.kernels.attend_backward(
            grad.contiguous(), attended, with_weight=of_weight
        )
        d_projected, d_bias = _sides_backward(d_sides, projected.size(1), with_bias=of_bias)
        return d_projected, d_bias, d_weight, None, None


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
    sides = weights.project(z, heads_last=kernels.heads_last)
    return _ModulatedDiffusion.apply(z, *sides, graph.full_weight, graph, modulation, kernels)  # type: ignore[no-any-return, no-untyped-call]


class _ModulatedDiffusion(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        projected: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        graph: Graph,
        modulation: Modulation,
        kernels: Kernels,
    ) -> Tensor:
        z, projected, weight = z.contiguous(), projected.contiguous(), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        out, diffused = kernels.diffuse(z, projected, bias, weight, graph, modulation)
        attended = diffused.attended.attention, diffused.attended.relative
        rest = diffused.difference, diffused.norm, diffused.relative
        ctx.save_for_backward(z, projected, bias, weight, *attended, *rest)
        ctx.graph, ctx.modulation, ctx.kernels = graph, modulation, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, projected, bias, weight, attention, relative, *rest = ctx.saved_tensors
        _, _, of_bias, of_weight, *_ = ctx.needs_input_grad
        attended = Attended(projected, bias, weight, ctx.graph, attention, relative)
        d_z, d_sides, d_weight = ctx.kernels.diffuse_backward(
            grad.contiguous(),
            Diffused(attended, z, ctx.modulation, *rest),
            with_weight=of_weight,
        )
        d_projected, d_bias = _sides_backward(d_sides, projected.size(1), with_bias=of_bias)
        return d_z, d_projected, d_bias, d_weight, None, None, None
