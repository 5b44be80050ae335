"""Sparse matrix times dense matrix, differentiable in both."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.graph import Graph
from robust_diffusion.operators.kernels import kernels_for
from robust_diffusion.operators.products import product_over
from robust_diffusion.operators.segments import gather_dst, gather_src


def spmm(
    weight: Float[Tensor, " e"], z: Float[Tensor, "n d"], graph: Graph
) -> Float[Tensor, "n d"]:
    """Weighted sum over incoming edges: out_u = sum over edges (v -> u) of weight_uv z_v.

    Saves only its inputs for the backward pass, no tensor of e x d entries; the gradient with
    respect to `z` is the product with the transpose, over the edges sorted by source.
    It is 0 at a node that no edge reaches.
    """
    return _SpMM.apply(weight, z, graph)  # type: ignore[no-any-return, no-untyped-call]


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, z: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(weight, z)
        ctx.graph = graph
        return product_over(graph.rowptr, graph.src, weight, z.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, z = ctx.saved_tensors
        graph: Graph = ctx.graph
        grad = grad.contiguous()
        grad_weight = grad_z = None
        if ctx.needs_input_grad[0]:
            if kernels := kernels_for(grad, z):
                grad_weight = kernels.dots(grad, z.contiguous(), graph)
            else:
                grad_weight = (gather_dst(grad, graph) * gather_src(z, graph)).sum(-1)
        if ctx.needs_input_grad[1]:
            by_source = weight.index_select(0, graph.order_by_source)
            grad_z = product_over(graph.colptr, graph.dst_by_source, by_source, grad)
        return grad_weight, grad_z, None
