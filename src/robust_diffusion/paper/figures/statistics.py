"""Statistics of edge weights within and between classes."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.stats import rankdata


@dataclass(frozen=True)
class EdgeStatistics:
    """Weights of a layer's edges inside classes (intra) and between them (inter).

    Args:
        intra_edges: Number of directed edges inside a class, self-loops aside.
        inter_edges: Number of directed edges between classes.
        intra_mean: Mean weight of the former.
        inter_mean: Mean weight of the latter.
        inter_share: Share of all weight on edges between classes, in 0..1.
        inter_preference: Mean over edges between classes of the edge's weight over the mean
            weight arriving at the same node; 1 where a node makes no difference.
        inter_above_intra: Probability that an edge between classes outweighs one inside a class,
            ties half; 0.5 where weights are unrelated to classes.
        evenness: Mean over nodes with two neighbours or more of the entropy of the weights that
            arrive, over its largest value; 1 where all weigh the same.
    """

    intra_edges: int
    inter_edges: int
    intra_mean: float | None
    inter_mean: float | None
    inter_share: float | None
    inter_preference: float | None
    inter_above_intra: float | None
    evenness: float | None


def edge_statistics(
    weight: Float[ndarray, " e"],
    src: Int[ndarray, " e"],
    dst: Int[ndarray, " e"],
    label: Int[ndarray, " n"],
) -> EdgeStatistics:
    """Statistics of the weights of directed edges; `None` where there are no such edges.

    Args:
        weight: At least 0.
        src: Source of each edge.
        dst: Destination of each edge; no self-loops.
        label: Class of each node.
    """
    weight = weight.astype(np.float64)
    inter = label[src] != label[dst]
    n = label.size
    degree = np.bincount(dst, minlength=n)
    total = np.bincount(dst, weights=weight, minlength=n)
    arriving = total[dst]
    # A node to which no weight arrives prefers none of its edges.
    share = np.divide(weight, arriving, out=1 / degree[dst], where=arriving > 0)
    entropy = np.bincount(dst, weights=-share * np.log(np.maximum(share, 1e-300)), minlength=n)
    several = (degree > 1) & (total > 0)
    intra_edges, inter_edges = int((~inter).sum()), int(inter.sum())
    above = rankdata(weight)[inter].sum() - inter_edges * (inter_edges + 1) / 2
    return EdgeStatistics(
        intra_edges=intra_edges,
        inter_edges=inter_edges,
        intra_mean=_mean(weight[~inter]),
        inter_mean=_mean(weight[inter]),
        inter_share=_ratio(weight[inter].sum(), weight.sum()),
        inter_preference=_mean((share * degree[dst])[inter]),
        inter_above_intra=_ratio(above, intra_edges * inter_edges),
        evenness=_mean(entropy[several] / np.log(degree[several])),
    )


def _mean(values: Float[ndarray, " k"]) -> float | None:
    return float(values.mean()) if values.size else None


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
