"""Losses of attacks, one value per target; the attack raises their mean.

Let z be the logits and y the class that the target is driven away from. The logit margin is
m = max over c != y of z_c - z_y, and the target is misclassified if m > 0. The plain cross-entropy
is unbounded at misclassified targets, which then absorb the effort of the attack, and it is largest
if all targets are assigned to the same class. The other losses avoid this, except for `own_logit`,
which is unbounded at every target.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

LossName = Literal[
    "cross_entropy", "masked", "logit", "margin", "tanh_margin", "prob_margin", "own_logit"
]
_Loss = Callable[[Tensor, Tensor], Tensor]


def margins(scores: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return the score of the best other class minus that of the label."""
    label_scores = scores.gather(1, labels[:, None])
    best = scores.scatter(1, labels[:, None], -torch.inf).max(1).values
    return best - label_scores.squeeze(1)


def cross_entropy(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return -log softmax(z)_y."""
    return F.cross_entropy(logits, labels, reduction="none")


def masked(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return the cross-entropy, without a gradient at misclassified targets.

    Reference: Geisler et al. 2021, arXiv:2110.14038.
    """
    loss = cross_entropy(logits, labels)
    return torch.where(margins(logits, labels) > 0, loss.detach(), loss)


def margin(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return min(m, 0), which gains nothing more at misclassified targets.

    Reference: Carlini and Wagner 2017, arXiv:1608.04644.
    """
    return margins(logits, labels).clamp_max(0)


def tanh_margin(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return tanh(m), which is steepest at targets near the decision boundary.

    Reference: Geisler et al. 2021, arXiv:2110.14038.
    """
    return margins(logits, labels).tanh()


def prob_margin(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return the margin of the probabilities softmax(z).

    Reference: Mujkanovic et al. 2022, arXiv:2301.13694.
    """
    return margins(logits.softmax(1), labels)


def own_logit(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Return -z_y, the negative logit of the label, regardless of the others.

    Reference: The default of GRB 0.1.0, which passes logits to `nll_loss` as if they were
    log-probabilities; GRB's later code uses the cross-entropy.
    """
    return -logits.gather(1, labels[:, None]).squeeze(1)


LOSSES: Mapping[str, _Loss] = {
    "cross_entropy": cross_entropy,
    "masked": masked,
    "logit": margins,
    "margin": margin,
    "tanh_margin": tanh_margin,
    "prob_margin": prob_margin,
    "own_logit": own_logit,
}
