"""Equations of papers as dense n x n formulas, written without the package's operators.

Row u, column v of every matrix belongs to the edge v -> u. Equations: arXiv:2209.07754, and of the
baselines those of the papers that their docstrings name.
"""

import math

import numpy as np
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


def modulation(scores: Tensor, weight: Tensor) -> Tensor:
    """B, which counts a weight above 1 only: that of a share is in the attention."""
    return softmax(scores, weight) / torch.where(weight > 0, weight.clamp_max(1), 1.0)


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


def gradient_norm(
    z: Tensor, weight: Tensor, kind: str, floor: float, ceiling: float = math.inf
) -> Tensor:
    """|grad phi(u)|: the text's reading, or that of the authors' code."""
    if kind == "edges":
        distance = (z[:, None, :] - z[None, :, :]).square().sum(-1)
        return torch.minimum((weight * distance).sum(1) + floor, torch.tensor(ceiling)).sqrt()
    components = (weight @ z - z).square()
    bounded = torch.where(components < floor, floor, components)
    return torch.where(bounded > ceiling, ceiling, bounded).sum(1).sqrt()


def heat(z: Tensor, weight: Tensor) -> Tensor:
    """Eq. (mtx_heat) with w = 1 on every edge: the random walk's (A - I) Z."""
    return (weight / weight.sum(1, keepdim=True) - torch.eye(z.size(0), dtype=z.dtype)) @ z


def grand(z: Tensor, attended: Tensor, rate: float = 1.0) -> Tensor:
    """Eq. (mtx_heat): (A - I) Z."""
    return rate * (attended - torch.eye(z.size(0), dtype=z.dtype)) @ z


def mean_curvature(z: Tensor, weight: Tensor, attended: Tensor, norm: Tensor) -> Tensor:
    """Eq. (mtx_mean), with all terms of B(u, v) = softmax(1 / g_u + 1 / g_v)."""
    return _modulated(z, attended, modulation(1 / norm[:, None] + 1 / norm[None, :], weight))


def beltrami(z: Tensor, weight: Tensor, attended: Tensor, norm: Tensor) -> Tensor:
    """Eq. (mtx_beltrami), with all terms of B(u, v) = softmax(1 / g_u^2 + 1 / (g_u g_v))."""
    scores = 1 / norm[:, None].square() + 1 / (norm[:, None] * norm[None, :])
    return _modulated(z, attended, modulation(scores, weight))


def uniform_modulation(z: Tensor, weight: Tensor, attended: Tensor, norm: Tensor) -> Tensor:
    """(A / deg - Psi) Z, where weights above 1 count as emphasis."""
    return _modulated(z, attended, weight.clamp_min(1) / weight.sum(1, keepdim=True))


def p_laplacian(
    z: Tensor, weight: Tensor, attended: Tensor, norm: Tensor, p: float, kind: str
) -> Tensor:
    """Eq. (pLap) with B(u, v) of g_u^{p-2} + g_v^{p-2}, in three variants of B."""
    powers = norm[:, None] ** (p - 2) + norm[None, :] ** (p - 2)
    if kind == "softmax":
        return _modulated(z, attended, modulation(powers, weight))
    if kind == "power":
        return _modulated(z, attended, powers)
    return (attended * powers) @ z - z


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


def layer_norm(x: Tensor, norm: torch.nn.Module) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the channels of each node, scaled and shifted."""
    if not isinstance(norm, torch.nn.LayerNorm):
        return x
    centred = x - x.mean(1, keepdim=True)
    scaled = centred / (centred.square().mean(1, keepdim=True) + norm.eps).sqrt()
    return scaled * norm.weight + norm.bias


def batch_norm(x: Tensor, norm: torch.nn.BatchNorm1d) -> Tensor:
    """(x - mean) / sqrt(variance + eps) of each channel, by the running moments."""
    scaled = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    return scaled * norm.weight + norm.bias


def graph_attention(
    x: Tensor, weight: Tensor, matrix: Tensor, at_dst: Tensor, at_src: Tensor
) -> Tensor:
    """One head: alpha = softmax_v(LeakyReLU(a^T [W x_u || W x_v])), then alpha W x."""
    projected = x @ matrix.T
    scores = (projected @ at_dst)[:, None] + (projected @ at_src)[None, :]
    return softmax(torch.where(scores > 0, scores, 0.2 * scores), weight) @ projected


def root_mean_square_pool(x: Tensor, dense: Tensor) -> Tensor:
    """Root of the weighted mean of the squares over the neighbourhood of each node."""
    return (dense / dense.sum(1, keepdim=True) @ x.square()).sqrt()


def personalized_pagerank(local: Tensor, dense: Tensor, teleport: float, steps: int) -> Tensor:
    """Z <- (1 - alpha) A Z + alpha H, written as the sum of its powers of A."""
    powers = [local]
    for _ in range(steps):
        powers.append((1 - teleport) * dense @ powers[-1])
    return powers[-1] + teleport * sum(powers[:-1], torch.zeros_like(local))


def gaussian_convolution(mean: Tensor, variance: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    """RobustGCN on A + I: means and variances, attended by exp(-variance)."""
    inverse = torch.diag(1 / dense.sum(1))
    attention = torch.exp(-variance)
    return (
        inverse.sqrt() @ dense @ inverse.sqrt() @ (mean * attention),
        inverse @ dense @ inverse @ (variance * attention * attention),
    )


def guard(x: Tensor, adjacent: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """GNNGuard on the 0/1 matrix of a graph with self-loops: the edges kept, and their weights.

    Per row: similarities under the threshold are dropped, those of neighbours divided by their
    sum, the diagonal set to 1 / (neighbours + 1), and everything put through exp.
    """
    x = x.detach()
    kept, weights = torch.zeros_like(adjacent), torch.zeros_like(adjacent)
    for u in range(x.size(0)):
        likeness = {
            v: float(x[u] @ x[v] / (x[u].norm() * x[v].norm()))
            for v in range(x.size(0))
            if v != u and adjacent[u, v] > 0
        }
        stays = {v: s for v, s in likeness.items() if s >= threshold}
        kept[u, u], weights[u, u] = 1.0, math.exp(1 / (len(stays) + 1))
        for v, s in stays.items():
            kept[u, v], weights[u, v] = 1.0, math.exp(s / sum(stays.values()))
    return kept, weights


def truncated(matrix: Tensor, rank: int) -> Tensor:
    """Best approximation of that rank, from the full singular value decomposition."""
    u, s, vt = np.linalg.svd(matrix.detach().numpy())
    return torch.from_numpy((u[:, :rank] * s[:rank]) @ vt[:rank])


def normalized(weight: Tensor) -> Tensor:
    """D^{-1/2} W D^{-1/2} of a matrix that has its self-loops already."""
    scale = weight.sum(1).rsqrt()
    return scale[:, None] * weight * scale[None, :]


def graphcon(
    x: Tensor, y: Tensor, weight: Tensor, matrix: Tensor, frequency: float, damping: float
) -> tuple[Tensor, Tensor]:
    """GraphCON of first order: velocity and acceleration."""
    force = (normalized(weight) @ x @ matrix.T).clamp_min(0)
    return y, force - frequency * x - damping * y


def hamiltonian(energy: Tensor, state: Tensor) -> Tensor:
    """Hamilton's equations [dH/dp, -dH/dq] of an energy of the state [q, p], by autograd."""
    by_q, by_p = torch.autograd.grad(energy, state, create_graph=True)[0].chunk(2, 1)
    return torch.cat([by_p, -by_q], 1)


def hang_energy(state: Tensor, weight: Tensor, flow: torch.nn.Module) -> Tensor:
    """Energy of HANG: the length of A tanh(A [q, p] W_1 + b_1) W_2 + b_2."""
    adjacent = normalized(weight)
    hidden = torch.tanh(adjacent @ state @ flow.inner.weight.T + flow.inner.bias)
    return _length(adjacent @ hidden @ flow.outer.weight.T + flow.outer.bias, flow)


def hang_quad_energy(state: Tensor, weight: Tensor, flow: torch.nn.Module) -> Tensor:
    """Energy of HANG-quad: tr(p^T A A p) / n + |GAT(q)|."""
    (q, p), linear, ends = state.chunk(2, 1), flow.linear, flow.ends
    squared = normalized(weight) @ normalized(weight)
    projected = q @ linear.weight.T
    scores = (projected @ ends[0])[:, None] + (projected @ ends[1])[None, :]
    attended = softmax(torch.where(scores > 0, scores, 0.2 * scores), weight)
    kinetic = torch.trace(p.T @ squared @ p) / (2 if flow.scale == "node" else len(p))
    return kinetic + _length(attended @ projected + linear.bias, flow)


def _length(values: Tensor, flow: torch.nn.Module) -> Tensor:
    return values.square().sum() / 2 if flow.scale == "node" else values.norm()


def gread(z: Tensor, attended: Tensor, alpha: Tensor, beta: Tensor, reaction: str) -> Tensor:
    """alpha (A - I) Z + beta r(Z), the reaction written as a polynomial."""
    eye = torch.eye(z.size(0), dtype=z.dtype)
    reacted = {
        "bspm": (attended - attended @ attended) @ z,
        "fisher": z - z**2,
        "allen_cahn": z - z**3,
        "zeldovich": z**2 - z**3,
    }
    return (attended - eye) @ z * alpha + reacted[reaction] * beta


def learned(
    z: Tensor,
    adjacent: Tensor,
    attended: Tensor,
    rate: Tensor,
    hidden: torch.nn.Linear,
    score: torch.nn.Linear,
) -> Tensor:
    """2 kappa (A m - its row sums) Z, the modulation m pair by pair."""
    degree, flow = adjacent.sum(1), torch.zeros_like(z)
    for u, v in attended.nonzero().tolist():
        distance = (z[v] - z[u]).square().mean()
        signs = (1 + torch.stack([degree[u], degree[v], distance])).log()
        modulation = score(hidden(signs).tanh()).sigmoid()
        flow[u] += 2 * rate * attended[u, v] * modulation * (z[v] - z[u])
    return flow


def acmp(
    z: Tensor, weight: Tensor, attended: Tensor, alpha: Tensor, delta: Tensor, repulsion: float
) -> Tensor:
    """Node by node: alpha sum_v (a_uv - beta)(z_v - z_u) + delta z (1 - z^2)."""
    out = torch.zeros_like(z)
    for u in range(len(z)):
        for v in range(len(z)):
            out[u] += (attended[u, v] - repulsion * weight[u, v]) * (z[v] - z[u])
    return alpha * out + delta * z * (1 - z**2)


def return_probabilities(weight: Tensor, steps: int) -> Tensor:
    """Diagonals of P, P^2, ... of the random walk over the edges but self-loops."""
    weight = weight - torch.diag(weight.diagonal())
    walk = torch.stack([row / row.sum() if row.sum() > 0 else row for row in weight])
    powers = [torch.linalg.matrix_power(walk, i) for i in range(1, steps + 1)]
    return torch.stack([power.diagonal() for power in powers], 1)


def blend(
    x: Tensor, u: Tensor, weight: Tensor, key: Tensor, query: Tensor, heads: int, rate: float
) -> tuple[Tensor, Tensor]:
    """BLEND: rate (A([X, U]) - I) times X, and times U."""
    attended = attention(torch.cat([x, u], 1), weight, key, query, heads)
    return grand(x, attended, rate), grand(u, attended, rate)


def grand_pp(z: Tensor, initial: Tensor, attended: Tensor, source: float) -> Tensor:
    """(A - I) Z + s (Z(0) - mean)."""
    centred = torch.eye(len(z), dtype=z.dtype) - 1 / len(z)
    return grand(z, attended) + source * centred @ initial
