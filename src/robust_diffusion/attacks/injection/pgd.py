"""PGD, as an injection attack."""

from typing import ClassVar

from robust_diffusion.attacks.injection.features import SignAttack
from robust_diffusion.attacks.injection.starts import StartName


class PGD(SignAttack):
    """Projected gradient descent on injected features: sign steps from a random start.

    As `FGSM`, but the features start normal of mean 0, their standard deviation a tenth of the
    largest magnitude that the limits allow.

    Reference: Madry et al. 2018, arXiv:1706.06083; GRB's injection form, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
        loss: Raised by the steps; see `attacks.losses`. GRB 0.1.0 takes `own_logit`.

    Deviation: GRB takes a tenth of the upper limit, which is the same where the limits are
    symmetric.

    Examples:
        >>> from robust_diffusion import GCN, PGD, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), PGD(num_steps=2))
        >>> graph.to_data().num_nodes
        102
    """

    name = "pgd"
    start: ClassVar[StartName] = "small_normal"
