"""AGIA."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.attacks.injection.edges import Candidates, EdgeAttack
from robust_diffusion.attacks.problem import check_finite
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps

HALVINGS = 40
"""Halvings of an interval of length about 1 until it is shorter than a float can tell."""


class AGIA(EdgeAttack):
    """Adaptive injection: fit the weights of all candidate edges by Adam, then keep the heaviest.

    In each round, the weights of all edges from the batch to the targets start at those of the
    present edges, 0 or 1, and ascend the loss; after each step they are projected onto weights in
    [0, 1] of which each node's add up to at most its number of edges. The heaviest become edges.

    Reference: AGIA, appendix of Chen et al. 2022, arXiv:2202.08057.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features per fit, at least 0.
        num_rounds: Times that a batch's edges are chosen anew, at least 0.
        learning_rate: Adam's on the edge weights, positive.
        num_edge_steps: Gradient steps on the edge weights per round, at least 0.
        batch_ratio: Share of the injected nodes that goes in at a time, in (0, 1].
        loss_cap: Cross-entropy from which a target counts as lost, above 0; see `EdgeAttack`.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

    Raises:
        ConfigError: A number out of range.

    Deviation: The authors' code lets the weights leave [0, 1] and adds an L1 penalty to the loss
    where this projects; it begins the features anew after each round, and caps no loss.

    Examples:
        >>> from robust_diffusion import AGIA, GCN, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> quick = AGIA(num_steps=1, num_rounds=1, num_edge_steps=1)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), quick)
        >>> graph.to_data().num_nodes
        102
    """

    name = "agia"

    def __init__(
        self,
        *,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        num_rounds: Steps = 2,
        learning_rate: Positive = 0.03,
        num_edge_steps: Steps = 100,
        batch_ratio: PositiveShare = 1.0,
        loss_cap: Positive | None = 4.0,
        homophily: NonNegative = 0.0,
    ) -> None:
        super().__init__(
            step_size=step_size,
            num_steps=num_steps,
            num_rounds=num_rounds,
            batch_ratio=batch_ratio,
            loss_cap=loss_cap,
            homophily=homophily,
        )
        self.learning_rate = learning_rate
        self.num_edge_steps = num_edge_steps

    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Adam on the weights of all candidates, then the heaviest."""
        counts = chosen.sum(1)
        weight = chosen.to(candidates.x.dtype)
        optimizer = torch.optim.Adam([weight], lr=self.learning_rate)
        for _ in range(self.num_edge_steps):
            weight.grad = -candidates.slope(weight)
            optimizer.step()
            weight.copy_(project(weight, counts))
        # Adam's moments keep a NaN for good.
        check_finite(weight.isfinite().all(), attack=self.name, of="edge weights")
        rank = weight.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return rank < counts[:, None]


def project(weight: Float[Tensor, "k t"], total: Int[Tensor, " k"]) -> Float[Tensor, "k t"]:
    """The nearest weights in [0, 1] whose sum over each row is at most its total.

    These are clamp(weight - s, 0, 1) with the smallest s >= 0 in each row that does it.
    """
    low = weight.new_zeros(weight.size(0))
    high = weight.max(1).values.clamp_min(0)
    fits = weight.clamp(0, 1).sum(1) <= total
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = (weight - middle[:, None]).clamp(0, 1).sum(1) <= total
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    shift = torch.where(fits, torch.zeros_like(high), high)
    return (weight - shift[:, None]).clamp(0, 1)
