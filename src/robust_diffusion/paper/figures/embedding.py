"""Node representations in the plane."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from sklearn.manifold import TSNE

from robust_diffusion.checks import check_number

MIN_NODES = 4
"""Fewest nodes for t-SNE; fewer are laid out on a circle."""


def tsne(z: Float[ndarray, "n d"], *, seed: int, perplexity: float = 30.0) -> Float[ndarray, "n 2"]:
    """t-SNE of the representations, the same for the same input and seed.

    Started from the principal components, so that the large-scale layout has a meaning.

    Reference: van der Maaten and Hinton 2008; Kobak and Berens 2019, arXiv:1902.07023 (start).

    Args:
        z: One row per node.
        seed: Seed of the approximation.
        perplexity: Effective number of neighbours, above 0; lowered where there are too few nodes.

    Returns:
        Centred positions, the larger of the two extents from -1 to 1.

    Raises:
        ConfigError: The perplexity is out of range.
    """
    n = len(z)
    wanted = check_number("--perplexity", perplexity, above=0)
    if n < MIN_NODES or not (z != z[0]).any():
        angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    method = TSNE(
        2,
        perplexity=min(wanted, (n - 1) / 3),
        init="pca" if min(z.shape) > 1 else "random",
        learning_rate="auto",
        random_state=seed,
    )
    layout = method.fit_transform(np.asarray(z, np.float64)).astype(np.float64)
    low, high = layout.min(0), layout.max(0)
    half = max((high - low).max() / 2, 1e-12)
    return (layout - (low + high) / 2) / half  # type: ignore[no-any-return]
