"""Injection of zero-feature nodes along leading eigenvectors, without gradient or model."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from threadpoolctl import threadpool_limits
from torch import Generator, Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_scipy_sparse_matrix

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Problem
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.base import InjectionAttack, connect
from robust_diffusion.checks import Count


class EigenvectorInjection(InjectionAttack):
    """Injection along leading eigenvectors, which shows the effect of edges without features.

    Injected node j follows the eigenvector of rank j modulo `num_vectors`. The matrix is the
    symmetrically normalised adjacency of the largest connected component, with self-loops. Each
    node gets edges to the targets with the largest entries by magnitude that are not yet joined to
    an earlier node of the same eigenvector, and starts over after the last target. Its features are
    0, or the limit nearest to 0. The model is never evaluated.

    Reference: After PEANUT, arXiv:2603.26136, of which it keeps the zero features and the alignment
    of new edges with eigenvectors.

    Deviation: PEANUT connects its nodes to any node, by weights.

    Args:
        num_vectors: Number of eigenvectors to cycle through, at least 1.

    Examples:
        >>> from robust_diffusion import EigenvectorInjection
        >>> EigenvectorInjection().kind
        'injection'
    """

    name = "eigenvector"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __init__(self, *, num_vectors: Count = 16) -> None:
        super().__init__()
        self.num_vectors = num_vectors

    def inject(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Rank the targets by each eigenvector, and deal them out."""
        x, targets, (low, high) = problem.x, problem.targets, budget.limits
        degrees = budget.injected_degrees
        orders = self._orders(problem, min(self.num_vectors, len(degrees)))
        edges_dealt = [0] * len(orders)
        rows = []
        for node, degree in enumerate(degrees):
            turn = node % len(orders)
            places = (torch.arange(degree) + edges_dealt[turn]) % targets.numel()
            rows.append(targets[orders[turn][places].to(targets.device)])
            edges_dealt[turn] += degree
        features = x.new_full((len(rows), x.size(1)), min(max(0.0, low), high))
        return torch.cat([x, features]), connect(problem.edge_index, rows, x.size(0))

    def _orders(self, problem: Problem, count: int) -> list[Int[Tensor, " t"]]:
        """Rank the positions of the targets by each leading eigenvector, largest entry first."""
        from scipy.sparse.csgraph import connected_components  # late, since few attacks need it
        from scipy.sparse.linalg import eigsh

        n = problem.x.size(0)
        edge_index, weight = gcn_norm(problem.edge_index.cpu(), num_nodes=n, dtype=torch.float64)
        matrix = to_scipy_sparse_matrix(edge_index, weight, n).tocsr()
        # Each component has an eigenvalue of 1, so for several components the eigenvectors would
        # be an arbitrary mixture.
        component = connected_components(matrix, directed=False)[1]
        inside = np.flatnonzero(component == np.bincount(component).argmax())
        matrix = matrix[inside][:, inside]
        count, size = min(count, len(inside)), len(inside)
        with threadpool_limits(1, user_api="blas"):  # the same bits for any number of threads
            if count < size - 1:
                # A fixed start makes the result the same from call to call.
                start = np.random.default_rng(0).standard_normal(size)
                vectors = eigsh(matrix, k=count, which="LA", v0=start)[1]
            else:
                vectors = np.linalg.eigh(matrix.toarray())[1]
        entries = torch.zeros(n, count, dtype=torch.float64)
        entries[inside] = torch.from_numpy(vectors[:, ::-1][:, :count].copy()).abs()
        entries = entries[problem.targets.cpu()]
        return list(entries.argsort(dim=0, descending=True, stable=True).T)
