"""SPEIT."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks.base import Classifier, PerturbedGraph, frozen
from robust_diffusion.attacks.budget import InjectionBudget
from robust_diffusion.attacks.injection.base import (
    FeatureOptimizingAttack,
    connect,
    predicted_labels,
)


class SPEIT(FeatureOptimizingAttack):
    """SPEIT: inject nodes at random targets, then raise the model's loss by their features.

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start at 0
    and ascend the cross-entropy against the model's own clean predictions, clamped to the
    feature limits after each step.

    Reference: Zheng et al., first place of KDD Cup 2020; GRB's "random" mode, arXiv:2111.04314;
    section "Attack Setup", arXiv:2209.07754.

    Args:
        learning_rate: Adam's, positive.
        num_steps: Gradient steps on the features, at least 0.
    """

    name = "speit"

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: InjectionBudget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Run the attack; see `Attack`."""
        budget.check_targets(target_nodes.numel())
        x, edge_index = data.x, data.edge_index
        assert x is not None
        assert edge_index is not None
        k, m = budget.max_injected_nodes, budget.max_edges_per_injected_node
        low, high = budget.limits
        drawn = torch.rand(k, target_nodes.numel(), generator=generator).argsort(1)[:, :m]
        if k == 0:
            return PerturbedGraph(x, edge_index, x.size(0))
        edges = connect(edge_index, list(target_nodes[drawn.to(target_nodes.device)]), x.size(0))
        start = x.new_zeros(k, x.size(1)).clamp(low, high)
        with frozen(model):
            labels = predicted_labels(model, x, edge_index)[target_nodes]
            features = self.minimize(
                start,
                lambda new: (
                    -F.cross_entropy(model(torch.cat([x, new]), edges)[target_nodes], labels)
                ),
                lambda new: new.clamp(low, high),
            )
        return PerturbedGraph(torch.cat([x, features]), edges, x.size(0))
