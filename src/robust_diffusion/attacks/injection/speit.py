"""SPEIT."""

from robust_diffusion.attacks.injection.features import AdamAttack


class SPEIT(AdamAttack):
    """SPEIT: inject nodes at random targets, then raise the model's loss by their features.

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start at 0
    and ascend the loss, by default the cross-entropy, against the model's own clean predictions,
    clamped to the feature limits after each step.

    Reference: Zheng et al., first place of KDD Cup 2020; GRB's "random" mode, arXiv:2111.04314;
    section "Attack Setup", arXiv:2209.07754.

    Args:
        learning_rate: Adam's, positive.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
        loss: Raised by the steps; see `attacks.losses`. GRB 0.1.0 takes `own_logit`.

    Examples:
        >>> from robust_diffusion import GCN, SPEIT, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), SPEIT(num_steps=2))
        >>> graph.to_data().num_nodes
        102
    """

    name = "speit"
