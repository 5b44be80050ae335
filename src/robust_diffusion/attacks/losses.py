"""Losses of an attack, one number for each target; the attack raises their mean.

With z the logits and y the class that the target is driven away from, the logit margin is
m = max over c != y of z_c - z_y: above 0, the target is wrong. The plain cross-entropy grows
without end at misclassified targets, which then absorb the effort of an attack, and it is largest
if all targets have one and the same class. The others avoid that, except for the label's own logit,
which falls without end at every target alike.
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
    """Score of the best other class less that of the label."""
    label_scores = scores.gather(1, labels[:, None])
    best = scores.scatter(1, labels[:, None], -torch.inf).max(1).values
    return best - label_scores.squeeze(1)


def cross_entropy(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """-log softmax(z)_y."""
    return F.cross_entropy(logits, labels, reduction="none")


def masked(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """Cross-entropy, without a gradient at targets that are lost.

    Reference: Geisler et al. 2021, arXiv:2110.14038.
    """
    loss = cross_entropy(logits, labels)
    return torch.where(margins(logits, labels) > 0, loss.detach(), loss)


def margin(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """min(m, 0): nothing more is gained at targets that are lost.

    Reference: Carlini and Wagner 2017, arXiv:1608.04644.
    """
    return margins(logits, labels).clamp_max(0)


def tanh_margin(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """tanh(m), steepest at targets that are about to change.

    Reference: Geisler et al. 2021, arXiv:2110.14038.
    """
    return margins(logits, labels).tanh()


def prob_margin(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """The same margin of the probabilities, softmax(z).

    Reference: Mujkanovic et al. 2022, arXiv:2301.13694.
    """
    return margins(logits.softmax(1), labels)


def own_logit(logits: Float[Tensor, "t c"], labels: Int[Tensor, " t"]) -> Float[Tensor, " t"]:
    """-z_y: the label's own logit, regardless of the others.

    Reference: The default of GRB 0.1.0, which hands logits to `nll_loss` as if they were logarithms
    of probabilities; GRB's later code takes the cross-entropy.
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
