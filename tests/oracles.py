"""The paper's equations as dense n x n formulas, written without the package's operators.

Row u, column v of every matrix belongs to the edge v -> u. Equations: arXiv:2209.07754.
"""

import math

import torch
from torch import Tensor


def adjacency(
    edge_index: Tensor, weight: Tensor, num_nodes: int, *, self_loops: bool = False
) -> Tensor:
    """W(u, v), with a self-loop of weight 1 where none is listed if `self_loops`."""
    dense = torch.zeros(num_nodes, num_nodes, dtype=weight.dtype)
    for source, target, value in zip(*edge_index.tolist(), weight, strict=True):
        dense[target, source] = dense[target, source] + value
    if self_loops:
        listed = {u for u, v in edge_index.T.tolist() if u == v}
        for node in set(range(num_nodes)) - listed:
            dense[node, node] = 1.0
    return dense


def softmax(scores: Tensor, weight: Tensor) -> Tensor:
    """Row-wise softmax over the entries of positive weight, each counted by its weight."""
    exponential = torch.where(weight > 0, scores, -torch.inf).exp() * weight
    total = exponential.sum(1, keepdim=True)
    return torch.where(total > 0, exponential / total, 0.0)


def attention(
    z: Tensor, weight: Tensor, key: Tensor, query: Tensor, heads: int, bias: Tensor | float = 0.0
) -> Tensor:
    """Eq. (w): the mean over heads of softmax((W_K z_u)^T (W_Q z_v) / sqrt(d_K))."""
    keys = (z @ key.T + bias).chunk(heads, 1)
    queries = (z @ query.T + bias).chunk(heads, 1)
    each = [
        softmax(k @ q.T / math.sqrt(k.size(1)), weight) for k, q in zip(keys, queries, strict=True)
    ]
    return torch.stack(each).mean(0)


def gradient_norm(z: Tensor, weight: Tensor, kind: str, floor: float) -> Tensor:
    """|grad phi(u)|: the text's reading, or that of the authors' code."""
    if kind == "edges":
        distance = (z[:, None, :] - z[None, :, :]).square().sum(-1)
        return ((weight * distance).sum(1) + floor).sqrt()
    return (weight @ z - z).square().clamp(min=floor).sum(1).sqrt()


def heat(z: Tensor, weight: Tensor) -> Tensor:
    """Eq. (mtx_heat) with w = 1 on every edge: the random walk's (A - I) Z."""
    return (weight / weight.sum(1, keepdim=True) - torch.eye(z.size(0), dtype=z.dtype)) @ z


def grand(z: Tensor, attended: Tensor, rate: float = 1.0) -> Tensor:
    """Eq. (mtx_heat): (A - I) Z."""
    return rate * (attended - torch.eye(z.size(0), dtype=z.dtype)) @ z


def mean_curvature(z: Tensor, weight: Tensor, attended: Tensor, norm: Tensor) -> Tensor:
    """Eq. (mtx_mean), with all terms of B(u, v) = softmax(1 / g_u + 1 / g_v)."""
    return _modulated(z, attended, softmax(1 / norm[:, None] + 1 / norm[None, :], weight))


def beltrami(z: Tensor, weight: Tensor, attended: Tensor, norm: Tensor) -> Tensor:
    """Eq. (mtx_beltrami), with all terms of B(u, v) = softmax(1 / g_u^2 + 1 / (g_u g_v))."""
    scores = 1 / norm[:, None].square() + 1 / (norm[:, None] * norm[None, :])
    return _modulated(z, attended, softmax(scores, weight))


def _modulated(z: Tensor, attended: Tensor, modulation: Tensor) -> Tensor:
    product = attended * modulation
    return (product - torch.diag(product.sum(1))) @ z


def gradient_matrix(edge_index: Tensor, weight: Tensor, num_nodes: int) -> Tensor:
    """Eq. (grad) as an e x n matrix; the edge [u, v] is v -> u."""
    degree = adjacency(edge_index, weight, num_nodes).sum(1)
    matrix = torch.zeros(edge_index.size(1), num_nodes, dtype=weight.dtype)
    for edge, (v, u) in enumerate(edge_index.T.tolist()):
        matrix[edge, v] += (weight[edge] / degree[v]).sqrt()
        matrix[edge, u] -= (weight[edge] / degree[u]).sqrt()
    return matrix


def divergence_matrix(edge_index: Tensor, weight: Tensor, num_nodes: int) -> Tensor:
    """Eq. (div) as an n x e matrix, on a symmetric graph without duplicate edges."""
    degree = adjacency(edge_index, weight, num_nodes).sum(1)
    position = {(u, v): edge for edge, (v, u) in enumerate(edge_index.T.tolist())}
    matrix = torch.zeros(num_nodes, edge_index.size(1), dtype=weight.dtype)
    for (u, v), edge in position.items():
        scale = (weight[edge] / degree[v]).sqrt()
        matrix[v, position[v, u]] += scale
        matrix[v, edge] -= scale
    return matrix


def laplacian_matrix(edge_index: Tensor, weight: Tensor, num_nodes: int) -> Tensor:
    """Eq. (graphLaplacian): D^{-1/2} (D - W) D^{-1/2}."""
    dense = adjacency(edge_index, weight, num_nodes)
    degree = dense.sum(1)
    scale = torch.diag(degree.rsqrt())
    return scale @ (torch.diag(degree) - dense) @ scale


def normalized_adjacency(edge_index: Tensor, weight: Tensor, num_nodes: int) -> Tensor:
    """D^{-1/2} (A + I) D^{-1/2} of a graph convolutional network."""
    dense = adjacency(edge_index, weight, num_nodes, self_loops=True)
    scale = dense.sum(1).rsqrt()
    return scale[:, None] * dense * scale[None, :]
