"""Products with the best low-rank approximation of a graph's adjacency matrix."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.graph import Graph, NodeSignal, gather_dst, gather_src, multiply

Gradient = Literal["exact", "straight_through", "detached"]

_TOLERANCE = 1e-10
"""Relative residual at which the linear systems of the exact gradient count as solved."""

MAX_ITERATIONS = 1000

DAMPING = 1e-9
"""Relative; keeps the exact gradient finite where the cut splits equal singular values."""


@dataclass(frozen=True, eq=False)
class LowRank:
    """Truncated singular value decomposition A ~ U diag(s) V^T, never multiplied out."""

    u: Float[Tensor, "n k"]  # left singular vectors
    s: Float[Tensor, " k"]  # singular values, all positive
    v: Float[Tensor, "n k"]  # right singular vectors
    is_cut: bool = True  # whether A may have more singular values than these


def truncated_svd(graph: Graph, rank: int) -> LowRank:
    """Return the largest singular values of the adjacency matrix A_uv = w_uv, and their vectors.

    ARPACK computes them on the CPU in double precision, in O(e rank) per iteration, on one thread,
    so that the bits do not depend on the process's number of threads. Fewer than `rank` are
    returned if A has fewer. The factors have no gradient, and stay in double precision, which the
    exact gradient needs.
    """
    weight = graph.full_weight.detach()
    matrix = csr_matrix(
        (weight.double().cpu().numpy(), graph.src.cpu().numpy(), graph.edges.rowptr.cpu().numpy()),
        shape=(graph.num_nodes, graph.num_nodes),
    )
    if not matrix.data.any():
        none = weight.new_zeros((graph.num_nodes, 0), dtype=torch.float64)
        return LowRank(none, none[0], none, is_cut=False)
    # More threads would sum in another order, and are no faster on such short vectors.
    with threadpool_limits(1, user_api="blas"):
        if rank < graph.num_nodes - 1:
            from scipy.sparse.linalg import svds  # late, since few models need it

            # A fixed start makes the result the same from call to call.
            start = np.random.default_rng(0).standard_normal(graph.num_nodes)
            u, s, vt = svds(matrix, k=rank, v0=start)
        else:
            u, s, vt = np.linalg.svd(matrix.toarray())
    largest = np.argsort(-s, kind="stable")[:rank]
    top = largest[s[largest] > 1e-10 * max(s.max(initial=0.0), 1e-30)]

    def tensor(values: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(weight.device)

    is_cut = len(top) == rank < graph.num_nodes
    return LowRank(tensor(u[:, top]), tensor(s[top]), tensor(vt[top].T), is_cut=is_cut)


def low_rank_product(
    z: NodeSignal, factors: LowRank, graph: Graph, *, gradient: Gradient
) -> NodeSignal:
    r"""Return U diag(s) V^T z, differentiable in z and, through the factors, in the edge weights.

    Args:
        z: Node features.
        factors: `truncated_svd` of `graph`.
        graph: The matrix that was decomposed; its weights get the gradient.
        gradient: `exact` is the derivative of the rank-k approximation; `straight_through` takes
            that of the matrix itself, as if nothing had been truncated; `detached` gives the
            weights none.

    Returns:
        The product, in O(n k d).
    """
    weight = graph.full_weight.detach() if gradient == "detached" else graph.full_weight
    return _LowRankProduct.apply(z, weight, factors, graph, gradient)  # type: ignore[no-any-return, no-untyped-call]


class _LowRankProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, factors: LowRank, graph: Graph, gradient: Gradient
    ) -> Tensor:
        ctx.save_for_backward(z)
        ctx.factors, ctx.graph, ctx.gradient = factors, graph, gradient
        u, s, v = (part.to(z.dtype) for part in (factors.u, factors.s, factors.v))
        return u @ (s[:, None] * (v.T @ z))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        (z,) = ctx.saved_tensors
        factors: LowRank = ctx.factors
        grad = grad.to(z.dtype)  # of a lower precision if the product was taken under autocast
        grad_z = grad_weight = None
        if ctx.needs_input_grad[0]:
            u, s, v = (part.to(z.dtype) for part in (factors.u, factors.s, factors.v))
            grad_z = v @ (s[:, None] * (u.T @ grad))
        untruncated = ctx.gradient == "straight_through" or not factors.is_cut
        if ctx.needs_input_grad[1] and untruncated:
            grad_weight = _at_edges(grad, z, ctx.graph)
        elif ctx.needs_input_grad[1]:
            grad_weight = _exact_gradient(grad, z, factors, ctx.graph)
        return grad_z, grad_weight, None, None, None


def _at_edges(left: Tensor, right: Tensor, graph: Graph) -> Tensor:
    """Return the entries of left @ right.T at the edges, row u and column v for the edge v -> u."""
    return (gather_dst(left, graph) * gather_src(right, graph)).sum(1)


def _exact_gradient(grad: Tensor, z: Tensor, factors: LowRank, graph: Graph) -> Tensor:
    r"""Return the derivative of <grad, A_k z> by the entries of A, with A_k its best rank-k matrix.

    With G = grad z^T and P, Q the projections onto the complements of U and V, it is
    U U^T G V V^T + sum_i s_i (u_i b_i^T + a_i v_i^T), where (a_i, b_i) solves
    s_i a - A b = P G v_i, s_i b - A^T a = Q G^T u_i in the complements. That is perturbation
    theory of the symmetric matrix [[0, A], [A^T, 0]]; the system is positive definite there,
    since every singular value that was cut is smaller than s_i.
    """
    u, s, v = factors.u.double(), factors.s.double(), factors.v.double()
    grad, z = grad.double(), z.double()
    by_v = grad @ (z.T @ v)  # G v_i
    by_u = z @ (grad.T @ u)  # G^T u_i
    right = torch.cat([by_v - u @ (u.T @ by_v), by_u - v @ (v.T @ by_u)])
    n = graph.num_nodes
    weight = graph.full_weight.detach().double()

    def apply(x: Tensor) -> Tensor:
        a, b, edges = x[:n].contiguous(), x[n:].contiguous(), graph.edges
        a_next = (1 + DAMPING) * s * a - multiply(weight, b, edges)
        b_next = (1 + DAMPING) * s * b - multiply(weight, a, edges, transposed=True)
        return torch.cat([a_next - u @ (u.T @ a_next), b_next - v @ (v.T @ b_next)])

    solution = _conjugate_gradients(apply, right)
    a, b = solution[:n], solution[n:]
    inside = _at_edges(u @ (u.T @ by_v), v, graph)
    outside = _at_edges(u * s, b, graph) + _at_edges(a * s, v, graph)
    return (inside + outside).to(graph.dtype)


def _conjugate_gradients(apply: Any, right: Tensor) -> Tensor:
    """Solve apply(x) = right for all columns at once."""
    x = torch.zeros_like(right)
    residual = right.clone()
    direction = residual.clone()
    squared = residual.square().sum(0)
    enough = (_TOLERANCE**2 * squared).clamp_min(1e-300)
    for _ in range(MAX_ITERATIONS):
        unsolved = squared > enough
        if not unsolved.any():
            break
        image = apply(direction)
        step = torch.where(unsolved, squared / (direction * image).sum(0), 0.0)
        x += step * direction
        residual -= step * image
        before, squared = squared, residual.square().sum(0)
        direction = residual + torch.where(unsolved, squared / before, 0.0) * direction
    return x
