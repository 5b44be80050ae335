"""Gradient, divergence and Laplacian on graphs, after Zhou and Schoelkopf (2005)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.operators.edges import edge_squared_distance, spmm
from robust_diffusion.operators.graph import (
    EdgeValues,
    Graph,
    NodeSignal,
    gather_dst,
    gather_src,
    row_sum,
)

GradientNorm = Literal["edges", "residual"]


def graph_gradient(phi: NodeSignal, graph: Graph) -> Float[Tensor, "e d"]:
    """Return the gradient of a node signal on the edges [u, v] = v -> u of a symmetric graph.

    sqrt(w_uv / h(v)) phi(v) - sqrt(w_uv / h(u)) phi(u), with h(u) the sum of the weights at u.

    Reference: eq. (grad), arXiv:2209.07754.
    """
    scaled = phi * _inverse_sqrt_degree(graph)[:, None]
    difference = gather_src(scaled, graph) - gather_dst(scaled, graph)
    return graph.full_weight.sqrt()[:, None] * difference


def graph_divergence(psi: Float[Tensor, "e d"], graph: Graph) -> NodeSignal:
    """Return the divergence of an antisymmetric edge signal, psi([u, v]) = -psi([v, u]).

    (div psi)(u) = sum over v of sqrt(w_uv / h(u)) (psi([u, v]) - psi([v, u])).

    Reference: eq. (div), arXiv:2209.07754.

    Args:
        psi: Antisymmetric edge signal, such as `graph_gradient` returns.
        graph: A symmetric graph: every edge has its reverse, of the same weight.
    """
    flow = 2 * graph.full_weight.sqrt()[:, None] * psi
    return _inverse_sqrt_degree(graph)[:, None] * row_sum(flow, graph)


def graph_laplacian(phi: NodeSignal, graph: Graph) -> NodeSignal:
    """Return the Laplacian of a node signal, -1/2 div grad phi = D^{-1/2} (D - W) D^{-1/2} phi.

    Reference: eq. (lap) and (graphLaplacian), arXiv:2209.07754.
    """
    return -0.5 * graph_divergence(graph_gradient(phi, graph), graph)


def gradient_norm(
    z: NodeSignal,
    weight: EdgeValues,
    graph: Graph,
    *,
    kind: GradientNorm,
    floor: float,
    ceiling: float | None = None,
) -> Float[Tensor, " n"]:
    """Return the norm g_u of the graph gradient at each node, bounded away from 0.

    `edges` is the text of the paper: g_u^2 = floor + sum over v of w_uv |z_v - z_u|^2.
    `residual` is the authors' public code: g_u^2 = sum over channels c of
    max(((A z - z)_uc)^2, floor).

    Reference: the norm below eq. (curv), arXiv:2209.07754; the degree h is left out as the paper
    does from eq. (neural_belt) on.

    Args:
        z: Node features.
        weight: Edge weights w, usually the attention A.
        graph: The edges.
        kind: `edges` or `residual`.
        floor: Positive lower bound; keeps 1 / g_u and its gradient finite where the signal is
            constant.
        ceiling: Upper bound, above the floor: of g_u^2 for `edges`, of each squared component
            for `residual`; `None` for none.

    Returns:
        A norm of at least sqrt(floor) per node.
    """
    if kind == "edges":
        squared = row_sum(weight * edge_squared_distance(z, graph), graph)
        squared = squared + floor
        return (squared if ceiling is None else squared.clamp_max(ceiling)).sqrt()
    residual = spmm(weight, z, graph) - z
    return residual.square().clamp(floor, ceiling).sum(-1).sqrt()


def _inverse_sqrt_degree(graph: Graph) -> Float[Tensor, " n"]:
    degree = row_sum(graph.full_weight, graph)
    return torch.where(degree > 0, degree.clamp_min(1e-38).rsqrt(), 0.0)
