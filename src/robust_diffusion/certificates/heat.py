"""A bound on the output of linear heat flow under changes of edges, without any draws."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from scipy.special import gammainc
from torch import Tensor

from robust_diffusion.checks import check_number

NEGLIGIBLE = 1e-12
"""Rest of a series that is added to the bound as a whole."""


@dataclass(frozen=True, eq=False)
class HeatBound:
    """Bounds on the change of heat flow between two graphs of the same nodes.

    Args:
        spectral: Of ||Z(T) - Z'(T)||_F / ||Z(0)||_F, under the symmetric normalised Laplacian.
        nodes: Of |z_v(T) - z'_v(T)| of any feature, per unit of the range of that feature in Z(0),
            under the random-walk operator, which `flows.Heat` has.
    """

    spectral: float
    nodes: Float[Tensor, " n"]


def heat_bound(
    edge_index: Int[Tensor, "2 e"],
    attacked: Int[Tensor, "2 a"],
    num_nodes: int,
    *,
    t_end: float = 1.0,
) -> HeatBound:
    """The change of heat flow that a change of edges can make, whatever the features are.

    With L = I - D^-1/2 W D^-1/2, W with self-loops, dZ/dt = -L Z changes by at most

    ||exp(-T L) - exp(-T L')||_2 <= T ||L - L'||_2,

    since both semigroups are contractions and exp(-T L') - exp(-T L) is the integral of
    exp(-(T - s) L) (L - L') exp(-s L') over s in [0, T] (Duhamel). That is the constant of
    Proposition 1 of arXiv:2209.07754, for any size of the change.

    For A = D^-1 W and dZ/dt = (A - I) Z the same formula holds node by node. Rows of A' - A sum to
    0, and Z'(s) stays within the range of Z(0), so that row u contributes at most
    r_u = sum_v |A'_uv - A_uv| / 2 of that range, and node v changes by at most

    sum_k P(N > k) (A^k r)_v, with N of the Poisson distribution of mean T,

    which is the integral of exp(s (A - I)) r. Far from the change the bound is small.

    Args:
        edge_index: Edges of the clean graph, both directions, without self-loops.
        attacked: Edges of the attacked graph of the same nodes.
        num_nodes: Number of nodes n.
        t_end: End T of the integration period, at least 0.

    Raises:
        ConfigError: A negative or infinite time.

    Examples:
        >>> import torch
        >>> from robust_diffusion import heat_bound
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> bound = heat_bound(path, path[:, :2], num_nodes=3)
        >>> 0 < bound.spectral < 1
        True
    """
    check_number("t_end", t_end, at_least=0)
    before, after = (_adjacency(edges, num_nodes) for edges in (edge_index, attacked))
    changed = (_scaled(after, 0.5, 0.5) - _scaled(before, 0.5, 0.5)).tocsr()
    walk = _scaled(before, 1.0, 0.0)
    rows = np.asarray(abs(_scaled(after, 1.0, 0.0) - walk).sum(1)).reshape(-1) / 2
    return HeatBound(
        spectral=t_end * _norm(changed),
        nodes=torch.from_numpy(_integral(walk, rows, t_end).clip(max=1.0)),
    )


def _adjacency(edge_index: Tensor, num_nodes: int) -> sp.csr_array:
    """Adjacency matrix with self-loops; row = node where an edge arrives."""
    src, dst = edge_index.cpu().numpy()
    ones = np.ones(src.size)
    edges = sp.coo_array((ones, (dst, src)), shape=(num_nodes, num_nodes))
    return (edges + sp.eye_array(num_nodes)).tocsr()


def _scaled(matrix: sp.csr_array, left: float, right: float) -> sp.csr_array:
    """D^-left W D^-right."""
    degrees = np.asarray(matrix.sum(1)).reshape(-1)
    return (sp.diags_array(degrees**-left) @ matrix @ sp.diags_array(degrees**-right)).tocsr()


def _norm(matrix: sp.csr_array) -> float:
    """Spectral norm of a symmetric matrix of which most rows are zero."""
    rows = np.flatnonzero(abs(matrix).sum(1))
    if not rows.size:
        return 0.0
    small = matrix[rows][:, rows]
    if rows.size <= 500:
        return float(np.abs(np.linalg.eigvalsh(small.toarray())).max())
    (value,) = eigsh(small, k=1, which="LM", return_eigenvectors=False)
    # From below, so the residual of the iteration is added.
    return float(abs(value) * (1 + 1e-8))


def _integral(walk: sp.csr_array, rows: NDArray[np.float64], t_end: float) -> NDArray[np.float64]:
    """The integral of exp(s (A - I)) r over s in [0, T]."""
    found, power, k, left = np.zeros_like(rows), rows, 0, t_end
    while left > NEGLIGIBLE:
        more_than_k = float(gammainc(k + 1, t_end))
        found = found + more_than_k * power
        left -= more_than_k  # these probabilities sum to T
        power, k = walk @ power, k + 1
        if more_than_k < NEGLIGIBLE:
            break
    rest: float = rows.max(initial=0.0)
    return found + max(left, 0.0) * rest
