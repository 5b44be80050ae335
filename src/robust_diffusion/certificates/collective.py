"""Collective certificate: a bound on how many targets one injection can change at once."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from scipy.sparse.linalg import splu
from torch import Tensor

from robust_diffusion.certificates.base import SLACK, ClassBounds, class_bounds
from robust_diffusion.certificates.bi_smoothing import BiSmoothing

BLOCK = 512
"""Targets whose walks are summed at a time."""

SMALL = 1e-8
"""Sums of walks below this are replaced by their largest, to keep the matrix sparse."""

MARGIN = 1e-3
"""Smallest eigenvalue for which the sum of walks counts as convergent."""

TOLERANCE = 1e-6
"""Upper bound on the solver's error in the number of targets."""


@dataclass(frozen=True, eq=False)
class Reach:
    """Bounds on the probability that noise keeps a path from an injected edge at u to target v.

    Noise deletes an edge with p_e and all edges of a node with p_n. A path with k further edges
    from u to v survives with probability (1 - p_n) q^(k + 1), q = (1 - p_n)(1 - p_e). Paths are
    non-backtracking walks. The sum of these over all lengths is
    (1 - q^2) [I - q A + q^2 (D - I)]^-1 for the adjacency A and degrees D, which gives a bound for
    models of any depth.

    Reference: Grindrod, Higham and Noferini 2018, SIAM J. Matrix Anal. Appl. 39(1), for the sum.
    """

    of_target: sp.csr_array  # t x n, without entries below `SMALL`
    small: Float[np.ndarray, " t"]  # the largest of the entries below `SMALL`
    largest: float  # probability 1 - p_n that the edges of a target are not deleted at once

    @classmethod
    def of(
        cls,
        edge_index: Int[Tensor, "2 e"],
        num_nodes: int,
        targets: Int[Tensor, " t"],
        p_e: float,
        p_n: float,
    ) -> "Reach | None":
        """Sum the walks from every node to the targets; `None` if the sum may diverge."""
        q, (src, dst) = (1 - p_n) * (1 - p_e), edge_index.cpu().numpy()
        adjacency = sp.csc_array((np.ones(src.size), (src, dst)), shape=(num_nodes, num_nodes))
        ones = sp.eye_array(num_nodes, format="csc")
        degrees = sp.diags_array(adjacency.sum(0), format="csc")
        matrix = sp.csc_array(ones - q * adjacency + q**2 * (degrees - ones))
        # The sum converges if and only if the matrix is positive definite.
        if not _is_positive(sp.csc_array(matrix - MARGIN * ones)):
            return None
        walks, columns = splu(matrix), targets.cpu().numpy()
        kept, small = [], []
        for block in np.split(columns, range(BLOCK, len(columns), BLOCK)):
            unit = np.zeros((num_nodes, len(block)))
            unit[block, np.arange(len(block))] = 1
            rows = (1 - p_n) * q * (1 - q**2) * walks.solve(unit).T.clip(0)
            small.append(np.where(rows < SMALL, rows, 0).max(1))
            kept.append(sp.csr_array(np.where(rows < SMALL, 0, rows)))
        return cls(sp.csr_array(sp.vstack(kept)), np.concatenate(small), 1 - p_n)


@dataclass(frozen=True, eq=False)
class Collective:
    """Joint effect of one injection on all targets."""

    scheme: BiSmoothing
    bounds: ClassBounds  # hold for all targets jointly
    right: Bool[np.ndarray, " t"]  # targets that are correctly classified without abstention
    reach: Reach

    @classmethod
    def of(
        cls,
        scheme: BiSmoothing,
        edge_index: Int[Tensor, "2 e"],
        num_nodes: int,
        targets: Int[Tensor, " t"],
        labels: Int[np.ndarray, " t"],
        selection: Int[Tensor, "t c"],
        votes: Int[Tensor, "t c"],
    ) -> "Collective | None":
        """Bound the probabilities and walks of all targets; `None` if the walks may diverge."""
        reach = Reach.of(edge_index, num_nodes, targets, scheme.p_e, scheme.p_n)
        bounds = class_bounds(selection, votes, scheme.alpha / len(labels))
        right = (bounds.predicted == labels) & ~bounds.abstained
        return Collective(scheme, bounds, right, reach) if reach else None

    def accuracy(self, nodes: int, edges_per_node: int) -> float:
        """Bound the share of targets that stay correct under any single attack, in 0..1.

        The bound holds with probability 1 - alpha over the draws. Targets that are certified
        individually do not change.
        """
        budget = {"nodes": nodes, "edges_per_node": edges_per_node}
        open_ = self.right & ~self.scheme.certified(self.bounds, budget)
        gaps = self.bounds.lower - self.bounds.upper
        changed = most_changed(self.reach, gaps, open_, nodes, edges_per_node)
        return float((self.right.sum() - changed) / self.right.size)


def most_changed(
    reach: Reach,
    gaps: Float[np.ndarray, " t"],
    open_: Bool[np.ndarray, " t"],
    nodes: int,
    edges_per_node: int,
) -> int:
    """Bound how many targets k injected nodes of at most m edges each can change together.

    Let E_v be the event that noise keeps a path from an injected node to v. Otherwise, v is
    classified as without the attack, so its class stays if p_A - p_B > 2 P(E_v). The last injected
    node on such a path has an edge to a node u of the graph, and the rest of the path is in the
    graph. Thus P(E_v) <= min(1 - p_n, sum_u y_u reach_uv) for y_u edges from injected nodes to u.
    The number of changed targets is at most the integer part of

    max sum_v z_v, z_v gap_v / 2 <= sum_u y_u reach_uv, 0 <= z <= 1, 0 <= y <= k, sum_u y_u <= k m,

    a linear program over the targets whose gap is at most 2 (1 - p_n).

    Reference: After Lai et al. 2024, arXiv:2403.01423, whose program is for message passing of a
    known depth.

    Args:
        reach: Bounds for single edges.
        gaps: Lower bound of p_A minus upper bound of p_B, holding for all targets jointly.
        open_: Targets to count; their gaps are positive.
        nodes: Number of injected nodes k, at least 0.
        edges_per_node: Edges m of each to nodes of the graph, at least 0; edges among injected
            nodes are not limited.
    """
    total = nodes * edges_per_node
    counted = np.flatnonzero(open_ & (gaps <= 2 * reach.largest + SLACK))
    if not total or not counted.size:
        return 0
    rows = reach.of_target[counted]
    (t, n), half = rows.shape, sp.diags_array(gaps[counted] / 2)
    spent = sp.hstack([sp.csr_array(np.ones((1, n))), sp.csr_array((1, t))])
    solution = linprog(
        np.repeat([0.0, -1.0], [n, t]),
        A_ub=sp.vstack([sp.hstack([-rows, half]), spent]),
        b_ub=np.append(reach.small[counted] * total, total),
        bounds=[(0, nodes)] * n + [(0, 1)] * t,
        method="highs",
    )
    # A feasible bounded program has an optimum; if rounding prevents it, no bound is known.
    return int(np.floor(TOLERANCE - solution.fun)) if solution.success else t


def _is_positive(matrix: sp.csc_array) -> bool:
    """Return whether a symmetric matrix is positive definite, from the pivots of elimination.

    An iterative eigenvalue solver could miss the smallest eigenvalue if there are few distinct
    ones.
    """
    symmetric = {"SymmetricMode": True}
    try:
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric)
    except RuntimeError:  # exactly singular
        return False
    on_diagonal = (factors.perm_r == factors.perm_c).all()
    return bool(on_diagonal and (factors.U.diagonal() > 0).all())
