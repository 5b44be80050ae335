"""Bounds of class probabilities from counts of votes, and of what an attacker makes of them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor

SLACK = 1e-9
"""Two probabilities that differ by less are taken as equal, well above the rounding of sums."""


@dataclass(frozen=True, eq=False)
class ClassBounds:
    """Bounds of the smoothed class probabilities of each node, true at once with 1 - alpha."""

    predicted: Int[np.ndarray, " t"]  # the class that the selection draws name
    lower: Float[np.ndarray, " t"]  # least probability of that class
    upper: Float[np.ndarray, " t"]  # largest probability of any other class

    @property
    def abstained(self) -> Bool[np.ndarray, " t"]:
        """Nodes at which the draws do not tell the most probable class."""
        return ~(self.lower > self.upper + SLACK)


def clopper_pearson(
    counts: Int[np.ndarray, "..."], samples: int, alpha: float
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Exact one-sided bounds of a binomial probability, each true with 1 - alpha.

    Of k of N draws that count, lower = B(alpha; k, N - k + 1), upper = B(1 - alpha; k + 1, N - k),
    quantiles of the beta distribution; 0 where no draw counts, 1 where each does.

    Reference: Clopper and Pearson 1934, Biometrika 26(4).
    """
    lower = np.where(counts > 0, beta.ppf(alpha, counts, samples - counts + 1), 0.0)
    upper = np.where(counts < samples, beta.ppf(1 - alpha, counts + 1, samples - counts), 1.0)
    return lower, upper


def class_bounds(
    selection: Int[Tensor, "t c"], votes: Int[Tensor, "t c"], alpha: float
) -> ClassBounds:
    """Bounds from two independent sets of votes.

    The first set names the class; the second bounds the probability of that class from below and
    of each other class from above, C bounds at alpha / C (Bonferroni). What remains from the named
    class bounds the others as well.

    Reference: Bojchevski, Gasteiger and Günnemann 2020, arXiv:2008.12952.
    """
    counts = votes.numpy().astype(np.int64)
    samples, classes = int(counts[0].sum()), counts.shape[1]
    predicted = selection.argmax(1).numpy()
    lower, upper = clopper_pearson(counts, samples, alpha / classes)
    nodes = np.arange(len(counts))
    of_predicted = lower[nodes, predicted]
    upper[nodes, predicted] = 0.0
    return ClassBounds(predicted, of_predicted, np.minimum(upper.max(1), 1 - of_predicted))


def worst_case(
    clean: Float[np.ndarray, " r"],
    attacked: Float[np.ndarray, " r"],
    lower: Float[np.ndarray, " t"],
    upper: Float[np.ndarray, " t"],
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Least and largest probability of an event under another distribution (Neyman-Pearson).

    The least that an event of probability p can become is reached by the event that fills regions
    in falling order of the likelihood ratio clean / attacked, the largest by rising order. Regions
    that the first distribution never meets are added to the largest, and never to the least.

    Args:
        clean: Probability of each region of constant likelihood ratio, without the attack.
        attacked: The same under the attack.
        lower: Least probability p of an event without the attack, to which the least belongs.
        upper: Largest probability p of another event, to which the largest belongs.
    """
    free = float(attacked[clean == 0].sum())
    met = clean > 0
    p, q = clean[met], attacked[met]
    falling = np.argsort(q / p)  # of clean / attacked
    return (
        _filled(p[falling], q[falling], lower),
        np.minimum(1, free + _filled(p[falling[::-1]], q[falling[::-1]], upper)),
    )


def _filled(
    p: NDArray[np.float64], q: NDArray[np.float64], mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mass of `q` in the first regions that hold the given mass of `p`."""
    filled: NDArray[np.float64] = np.interp(
        mass, np.concatenate([[0.0], p.cumsum()]), np.concatenate([[0.0], q.cumsum()])
    )
    return filled
