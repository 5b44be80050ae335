"""How many targets one attacker can change at once by injected nodes."""

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
"""Sums of walks below which the nodes that they begin at count alike, by the largest."""

MARGIN = 1e-3
"""Least eigenvalue at which the sum of walks is taken to converge."""

TOLERANCE = 1e-6
"""More than what the solver of linear programs leaves open in a count of targets."""


@dataclass(frozen=True, eq=False)
class Reach:
    """Bounds of the probability that an injected node's edge at u leaves a path to target v.

    Noise deletes an edge with p_e and all edges of a node with p_n. A path of k further edges from
    u to v is left with (1 - p_n) q^(k + 1), q = (1 - p_n)(1 - p_e). Paths are walks that never
    return by the edge that they came by, and these sum up, over every length, to
    (1 - q^2) [I - q A + q^2 (D - I)]^-1 for the adjacency A and degrees D: a bound for models of
    any depth.

    Reference: Grindrod, Higham and Noferini 2018, SIAM J. Matrix Anal. Appl. 39(1), for the sum.
    """

    of_target: sp.csr_array  # t x n, what is not small
    small: Float[np.ndarray, " t"]  # the largest of the rest
    largest: float  # probability 1 - p_n that a target has any edge at all

    @classmethod
    def of(
        cls,
        edge_index: Int[Tensor, "2 e"],
        num_nodes: int,
        targets: Int[Tensor, " t"],
        p_e: float,
        p_n: float,
    ) -> "Reach | None":
        """Sum the walks from every node to the targets; `None` where the sum may diverge."""
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
    """What one attacker who injects nodes can do to all targets."""

    scheme: BiSmoothing
    bounds: ClassBounds  # true of all targets at once
    right: Bool[np.ndarray, " t"]  # targets at which the named class is right, and settled
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
        """Bound the probabilities and walks of all targets; `None` where the walks may diverge."""
        reach = Reach.of(edge_index, num_nodes, targets, scheme.p_e, scheme.p_n)
        bounds = class_bounds(selection, votes, scheme.alpha / len(labels))
        right = (bounds.predicted == labels) & ~bounds.abstained
        return Collective(scheme, bounds, right, reach) if reach else None

    def accuracy(self, nodes: int, edges_per_node: int) -> float:
        """Least share of the targets that stay right under any one attack, in 0..1.

        With probability 1 - alpha over the draws. Targets that are certified one by one do not
        change.
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
    """Bound how many targets k injected nodes of at most m edges each change together.

    Let E_v be the event that noise leaves a path from an injected node to v. Where it does not
    happen, v is classified as without the attack, so its class stays if p_A - p_B > 2 P(E_v). The
    last injected node on such a path has an edge to a node u of the graph, and the rest of the path
    is the graph's: P(E_v) <= min(1 - p_n, sum_u y_u reach_uv) for y_u edges from injected nodes
    to u. No more targets change than the whole part of

    max sum_v z_v, z_v gap_v / 2 <= sum_u y_u reach_uv, 0 <= z <= 1, 0 <= y <= k, sum_u y_u <= k m,

    a linear program over the targets whose gap is at most 2 (1 - p_n).

    Reference: After Lai et al. 2024, arXiv:2403.01423, whose program is for message passing of a
    known depth.

    Args:
        reach: Bounds of single edges.
        gaps: Lower bound of p_A minus upper bound of p_B, true of all targets at once.
        open_: Targets that count; their gaps are positive.
        nodes: Injected nodes k, at least 0.
        edges_per_node: Edges m of each to nodes of the graph, at least 0; among each other injected
            nodes may have any.
    """
    total = nodes * edges_per_node
    chosen = np.flatnonzero(open_ & (gaps <= 2 * reach.largest + SLACK))
    if not total or not chosen.size:
        return 0
    rows = reach.of_target[chosen]
    (t, n), half = rows.shape, sp.diags_array(gaps[chosen] / 2)
    spent = sp.hstack([sp.csr_array(np.ones((1, n))), sp.csr_array((1, t))])
    found = linprog(
        np.repeat([0.0, -1.0], [n, t]),
        A_ub=sp.vstack([sp.hstack([-rows, half]), spent]),
        b_ub=np.append(reach.small[chosen] * total, total),
        bounds=[(0, nodes)] * n + [(0, 1)] * t,
        method="highs",
    )
    # Without an optimum, which a feasible bounded program has but for rounding, nothing is known.
    return int(np.floor(TOLERANCE - found.fun)) if found.success else t


def _is_positive(matrix: sp.csc_array) -> bool:
    """True if a symmetric matrix is positive definite: if elimination meets positive pivots only.

    An iterative eigenvalue solver may miss the smallest of few different eigenvalues.
    """
    symmetric = {"SymmetricMode": True}
    try:
        found = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric)
    except RuntimeError:  # exactly singular
        return False
    on_diagonal = (found.perm_r == found.perm_c).all()
    return bool(on_diagonal and (found.U.diagonal() > 0).all())
