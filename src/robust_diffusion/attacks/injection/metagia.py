"""MetaGIA."""

import torch
from jaxtyping import Bool
from torch import Tensor

from robust_diffusion.attacks.injection.edges import Candidates, EdgeAttack
from robust_diffusion.attacks.problem import check_finite
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps


class MetaGIA(EdgeAttack):
    """MetaGIA: exchange injected edges by the gradient of the loss with respect to them.

    In each round, with G the gradient of the loss with respect to the weights of all edges from
    the batch to the targets, present edges of low G are exchanged for absent ones of high G, each
    within its node, those of the highest gain in G; half as many, and again, until the loss rises.

    Reference: MetaGIA, appendix of Chen et al. 2022, arXiv:2202.08057.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features per fit, at least 0.
        num_rounds: Times that a batch's edges are chosen anew, at least 0.
        swap_ratio: Largest share of a batch's edges that one round exchanges, in (0, 1].
        batch_ratio: Share of the injected nodes that goes in at a time, in (0, 1].
        loss_cap: Cross-entropy from which a target counts as lost, above 0; see `EdgeAttack`.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

    Raises:
        ConfigError: A number out of range.

    Deviation: The authors' code flips edges one by one and evens out the total afterwards, so
    that a node may end with more edges than it is allowed; exchanges keep every node's number. It
    begins the features anew in each round, looks at no loss before it flips, and caps none.

    Examples:
        >>> from robust_diffusion import GCN, Budget, MetaGIA, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), MetaGIA(num_steps=1, num_rounds=1))
        >>> graph.to_data().num_nodes
        102
    """

    name = "metagia"

    def __init__(
        self,
        *,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        num_rounds: Steps = 8,
        swap_ratio: PositiveShare = 0.5,
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
        self.swap_ratio = swap_ratio

    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Exchange edges where the gradient says that it gains, and the loss agrees."""
        return exchange(candidates, chosen, self.swap_ratio)


def exchange(
    candidates: Candidates, chosen: Bool[Tensor, "k t"], swap_ratio: float
) -> Bool[Tensor, "k t"]:
    """One round of exchanges; see `MetaGIA`.

    Args:
        candidates: What can be chosen.
        chosen: What is.
        swap_ratio: Largest share of the edges that is exchanged, in (0, 1].

    Raises:
        AttackError: There is no gradient with respect to the edge weights, or it is not finite.
    """
    present = chosen.to(candidates.x.dtype)
    slope = candidates.slope(present)
    check_finite(slope.isfinite().all(), attack=candidates.problem.attack, of="edge weights")
    # The i-th worst edge of each node goes with its i-th best candidate.
    most = min(int(chosen.sum(1).max()), int((~chosen).sum(1).max()))
    worst = slope.masked_fill(~chosen, torch.inf).topk(most, 1, largest=False)
    best = slope.masked_fill(chosen, -torch.inf).topk(most, 1)
    gain, order = (best.values - worst.values).flatten().sort(descending=True)
    row, out, into = order // max(most, 1), worst.indices.flatten(), best.indices.flatten()
    count = min(int((gain > 0).sum()), max(1, int(chosen.sum() * swap_ratio)))
    with torch.no_grad():
        loss = candidates.loss(present)
        while count:
            first = order[:count]
            changed = chosen.clone()
            changed[row[:count], out[first]] = False
            changed[row[:count], into[first]] = True
            if candidates.loss(changed.to(present.dtype)) > loss:
                return changed
            count //= 2
    return chosen
