"""Bound on the change of linear heat flow between two graphs, which is not a certificate."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int
from scipy.sparse.linalg import eigsh, expm_multiply
from torch import Tensor

from robust_diffusion.checks import Nodes, NonNegative, validated


@dataclass(frozen=True, eq=False)
class HeatBound:
    """Bounds on the change of heat flow between two graphs of the same nodes, by operator."""

    # Bound on ||Z(T) - Z'(T)||_F / ||Z(0)||_F, only for the symmetric normalised Laplacian. The
    # random-walk operator of `flows.Heat` can change by more.
    symmetric_spectral: float
    # Bound on |z_v(T) - z'_v(T)| of any feature, per unit of the range of that feature in Z(0), for
    # the random-walk operator of `flows.Heat` with uniform weights.
    nodes: Float[Tensor, " n"]


@validated("")
def heat_bound(
    edge_index: Int[Tensor, "2 e"],
    attacked: Int[Tensor, "2 a"],
    num_nodes: Nodes,
    *,
    t_end: NonNegative = 1.0,
) -> HeatBound:
    """Bound the change of heat flow between two graphs, for any features.

    The bound is for these two graphs only, not for other perturbations.

    With L = I - D^-1/2 W D^-1/2, W with self-loops, dZ/dt = -L Z changes by at most

    ||exp(-T L) - exp(-T L')||_2 <= T ||L - L'||_2,

    since both semigroups are contractions and exp(-T L') - exp(-T L) is the integral of
    exp(-(T - s) L) (L - L') exp(-s L') over s in [0, T] (Duhamel). This is the constant of
    Proposition 1 of arXiv:2209.07754, for changes of any size.

    For A = D^-1 W and dZ/dt = (A - I) Z, the same formula holds node by node. Rows of A' - A sum to
    0, and Z'(s) stays within the range of Z(0). Row u therefore contributes at most
    r_u = sum_v |A'_uv - A_uv| / 2 of that range, and node v changes by at most the integral of
    exp(s (A - I)) r over s in [0, T]. Far from the change, the bound is small.

    Args:
        edge_index: Edges of the clean graph, both directions, without self-loops.
        attacked: Edges of the attacked graph of the same nodes.
        num_nodes: Number of nodes n.
        t_end: End T of the integration period, at least 0.

    Raises:
        ConfigError: The time is negative or infinite.

    Examples:
        >>> import torch
        >>> from robust_diffusion import heat_bound
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> bound = heat_bound(path, path[:, :2], num_nodes=3)
        >>> 0 < bound.symmetric_spectral < 1
        True
    """
    graphs = (edge_index, attacked)
    before, after = (_normalised(edges, num_nodes, 0.5, 0.5) for edges in graphs)
    walk, walk_after = (_normalised(edges, num_nodes, 1.0, 0.0) for edges in graphs)
    rows = np.asarray(abs(walk_after - walk).sum(1)).reshape(-1, 1) / 2
    # The integral solves dy/dt = (A - I) y + r c with a constant c = 1.
    system = sp.block_array([[walk - sp.eye_array(num_nodes), rows], [None, sp.csr_array((1, 1))]])
    solved = expm_multiply(t_end * system.tocsr(), np.eye(1, num_nodes + 1, num_nodes)[0])
    return HeatBound(
        symmetric_spectral=t_end * _norm((after - before).tocsr()),
        nodes=torch.from_numpy(solved[:-1].clip(0.0, 1.0)),
    )


def _normalised(edge_index: Tensor, n: int, left: float, right: float) -> sp.csr_array:
    """Return D^-left W D^-right of the adjacency matrix with self-loops; rows are targets."""
    src, dst = edge_index.cpu().numpy()
    matrix = sp.coo_array((np.ones(src.size), (dst, src)), shape=(n, n)) + sp.eye_array(n)
    degrees = np.asarray(matrix.sum(1)).reshape(-1)
    return (sp.diags_array(degrees**-left) @ matrix @ sp.diags_array(degrees**-right)).tocsr()


def _norm(matrix: sp.csr_array) -> float:
    """Compute the spectral norm of a symmetric matrix whose rows are mostly zero."""
    rows = np.flatnonzero(abs(matrix).sum(1))
    if not rows.size:
        return 0.0
    small = matrix[rows][:, rows]
    if rows.size <= 500:
        return float(np.abs(np.linalg.eigvalsh(small.toarray())).max())
    (value,) = eigsh(small, k=1, which="LM", return_eigenvectors=False)
    # The iteration converges from below, so its residual is added.
    return float(abs(value) * (1 + 1e-8))
