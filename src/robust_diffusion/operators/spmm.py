"""Sparse matrix times dense matrix, differentiable in both."""

from typing import Any

import torch
from torch import Tensor

from robust_diffusion.operators.edges import edge_dot
from robust_diffusion.operators.graph import EdgeValues, Graph, NodeSignal
from robust_diffusion.operators.segments import product_over


def spmm(weight: EdgeValues, z: NodeSignal, graph: Graph) -> NodeSignal:
    """Weighted sum over incoming edges: out_u = sum over edges (v -> u) of weight_uv z_v.

    Saves for the backward pass each input that the other's gradient needs, and no tensor of e x d
    entries; the gradient with respect to `z` is the product with the transpose, over the edges
    sorted by source.
    It is 0 at a node that no edge reaches. It can be differentiated twice.
    """
    return _SpMM.apply(weight, z, graph)  # type: ignore[no-any-return, no-untyped-call]


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, z: Tensor, graph: Graph) -> Tensor:
        _save(ctx, weight, z)
        ctx.graph = graph
        return product_over(graph.rowptr, graph.src, weight, z.contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, z = ctx.saved_tensors
        grad_weight = grad_z = None
        if ctx.needs_input_grad[0]:
            grad_weight = _dots(grad, z, ctx.graph)
        if ctx.needs_input_grad[1]:
            grad_z = _Transposed.apply(weight, grad, ctx.graph)  # type: ignore[no-untyped-call]
        return grad_weight, grad_z, None


class _Transposed(torch.autograd.Function):
    """Product with the transpose, over the outgoing edges."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, z: Tensor, graph: Graph) -> Tensor:
        _save(ctx, weight, z)
        ctx.graph = graph
        by_source = weight.index_select(0, graph.order_by_source)
        return product_over(graph.colptr, graph.dst_by_source, by_source, z.contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, z = ctx.saved_tensors
        grad_weight = grad_z = None
        if ctx.needs_input_grad[0]:
            grad_weight = _dots(z, grad, ctx.graph)
        if ctx.needs_input_grad[1]:
            grad_z = spmm(weight, grad, ctx.graph)
        return grad_weight, grad_z, None


def _save(ctx: Any, weight: Tensor, z: Tensor) -> None:
    """Features of a large graph are not kept for the gradient of weights that ask for none."""
    of_weight, of_z, _ = ctx.needs_input_grad
    ctx.save_for_backward(weight if of_z else None, z if of_weight else None)


def _dots(at_dst: Tensor, at_src: Tensor, graph: Graph) -> Tensor:
    return edge_dot(at_dst[:, None], at_src[:, None], graph).squeeze(1)
