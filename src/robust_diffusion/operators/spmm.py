"""Sparse matrix times dense matrix, differentiable in both."""

from typing import Any

import torch
from torch import Tensor

from robust_diffusion.operators.edges import edge_dot
from robust_diffusion.operators.graph import EdgeValues, Graph, NodeSignal
from robust_diffusion.operators.segments import product_over


def spmm(
    weight: EdgeValues, z: NodeSignal, graph: Graph, *, transposed: bool = False
) -> NodeSignal:
    """Weighted sum over incoming edges: out_u = sum over edges (v -> u) of weight_uv z_v.

    Over outgoing edges, out_v = sum over edges (v -> u) of weight_uv z_u, if `transposed`.

    Saves for the backward pass each input that the other's gradient needs, and no tensor of e x d
    entries; the gradient with respect to `z` is the product with the transpose, over the edges
    sorted by source.
    It is 0 at a node that no edge reaches. It can be differentiated twice.
    """
    return _SpMM.apply(weight, z, graph, transposed)  # type: ignore[no-any-return, no-untyped-call]


class _SpMM(torch.autograd.Function):
    """The product, or that with the transpose, over the outgoing edges."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, z: Tensor, graph: Graph, transposed: bool) -> Tensor:
        of_weight, of_z, *_ = ctx.needs_input_grad
        # Features of a large graph are not kept for the gradient of weights that ask for none.
        ctx.save_for_backward(weight if of_z else None, z if of_weight else None)
        ctx.graph, ctx.transposed = graph, transposed
        pointers, columns = graph.rowptr, graph.src
        if transposed:
            weight = weight.index_select(0, graph.order_by_source)
            pointers, columns = graph.colptr, graph.dst_by_source
        return product_over(pointers, columns, weight, z.contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weight, z = ctx.saved_tensors
        grad_weight = grad_z = None
        if ctx.needs_input_grad[0]:
            at_dst, at_src = (z, grad) if ctx.transposed else (grad, z)
            grad_weight = edge_dot(at_dst[:, None], at_src[:, None], ctx.graph).squeeze(1)
        if ctx.needs_input_grad[1]:
            grad_z = _SpMM.apply(weight, grad, ctx.graph, not ctx.transposed)  # type: ignore[no-untyped-call]
        return grad_weight, grad_z, None, None
