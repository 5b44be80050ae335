"""Diffusion along attention times edge modulation, in one differentiable function."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.attention import HeadWeights
from robust_diffusion.operators.edges import plain_softmax
from robust_diffusion.operators.graph import EdgeValues, Graph, NodeSignal
from robust_diffusion.operators.kernels import Attended, Diffused, Kernels, Modulation


def edge_modulation(scores: EdgeValues, graph: Graph) -> EdgeValues:
    r"""Softmax over incoming edges as a factor of the attention, which counts the weights already.

    .. math:: B_{uv} = \frac{\max(w_{uv}, 1) \exp s_{uv}}{\sum_{v'} w_{uv'} \exp s_{uv'}}

    At weights of 0 and 1, A * B is the product of two softmaxes. In between, a weight is the share
    of an edge that is there, and scales A * B once: counted in both numerators, an edge of weight
    0 would have a gradient of 0. A weight above 1 is emphasis, such as GNNGuard's, in A and in B.

    Args:
        scores: One score s per edge.
        graph: The edges; differentiable in their weights w.

    Returns:
        B, positive; its sum over the edges arriving at a node, each times min(w, 1), is 1.
    """
    # Left to autograd: the paper's flows have fused kernels; for others it is a tenth of a step.
    relative = plain_softmax(scores[:, None], graph.weight, graph).squeeze(1)
    # The gradient of clamp_min(1) at weight 1 is that of weights above 1, not below.
    return torch.where(graph.weight <= 1, 1.0, graph.weight) * relative


def modulated_diffusion(
    z: NodeSignal,
    weights: HeadWeights,
    graph: Graph,
    modulation: Modulation,
    kernels: Kernels,
) -> NodeSignal:
    r"""Right-hand side of the Beltrami, mean curvature and p-Laplacian flows.

    .. math:: \sum_v A_{uv} B_{uv} (z_v - z_u)

    with A the attention, B the `edge_modulation` of scores g_u^left g_v^right, and g the gradient
    norm under A. For its derivative it keeps tensors of
    n x d and of e entries, never of e x d.

    Differentiable in the features, in W_K and W_Q, and in the edge weights.
    """
    projected = weights.project(z, heads_last=kernels.heads_last)
    return _ModulatedDiffusion.apply(z, projected, graph.weight, graph, modulation, kernels)  # type: ignore[no-any-return, no-untyped-call]


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
