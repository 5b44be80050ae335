"""FGSM, as an injection attack."""

from robust_diffusion.attacks.injection.features import SignAttack


class FGSM(SignAttack):
    """Fast gradient sign method on injected features: x <- clamp(x + step_size sign(grad loss)).

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start at 0, as
    far as the limits allow, and take sign steps up the loss of the target nodes. One
    step is Goodfellow et al.'s method; GRB's takes many and differs from its PGD in the start.

    Reference: Goodfellow et al. 2015, arXiv:1412.6572; GRB's injection form, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
        loss: Raised by the steps; see `attacks.losses`. GRB 0.1.0 takes `own_logit`.

    Examples:
        >>> from robust_diffusion import FGSM, GCN, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), FGSM(num_steps=2))
        >>> graph.to_data().num_nodes
        102
    """

    name = "fgsm"
