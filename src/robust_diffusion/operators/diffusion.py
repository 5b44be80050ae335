"""Diffusion along attention times edge modulation, in one differentiable function."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.attention import HeadWeights
from robust_diffusion.operators.graph import Graph
from robust_diffusion.operators.kernels import Attended, Diffused, Kernels, Modulation


def modulated_diffusion(
    z: Float[Tensor, "n d"],
    weights: HeadWeights,
    graph: Graph,
    modulation: Modulation,
    kernels: Kernels,
) -> Float[Tensor, "n d"]:
    r"""Right-hand side of the Beltrami, mean curvature and p-Laplacian flows.

    .. math:: \sum_v A_{uv} B_{uv} (z_v - z_u), \quad
        B_{uv} = \mathrm{softmax}_v (g_u^{\mathrm{left}} g_v^{\mathrm{right}})

    with A the attention and g the gradient norm under A. For its derivative it keeps tensors of
    n x d and of e entries, never of e x d.

    Args:
        z: Node features.
        weights: W_K and W_Q.
        graph: The edges; differentiable in their weights.
        modulation: The exponents, and which gradient norm.
        kernels: What computes it; see `kernels_for`.
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
        ctx.save_for_backward(
            z,
            projected,
            weight,
            diffused.attended.attention,
            diffused.attended.relative,
            diffused.difference,
            diffused.norm,
            diffused.relative,
        )
        ctx.graph, ctx.modulation, ctx.kernels = graph, modulation, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        z, projected, weight, attention, relative, *rest = ctx.saved_tensors
        gradients = ctx.kernels.diffuse_backward(
            grad.contiguous(),
            z,
            projected,
            weight,
            ctx.graph,
            ctx.modulation,
            Diffused(Attended(attention, relative), *rest),
            with_weight=ctx.needs_input_grad[2],
        )
        return *gradients, None, None, None
