"""Visibility of an attack: accuracy after an outlier filter has removed suspicious edges."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import degree, scatter

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.checks import Count, PositiveShare, Seed, validated
from robust_diffusion.errors import ConfigError, needs_extra
from robust_diffusion.evaluation.evaluate_model import subject_of
from robust_diffusion.evaluation.report import RobustnessReport
from robust_diffusion.models.checked import own_context

COMPONENTS = 32
"""Principal components of the features in which nodes are compared."""


@validated("")
@own_context()
def filtered(
    model: nn.Module,
    report: RobustnessReport,
    shares: Sequence[PositiveShare] = (0.03, 0.15),
    *,
    neighbors: Count = 100,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Compute the accuracy under each attack of a report after disconnecting outliers.

    The filter only sees the attacked graph, neither the clean graph nor any label. It scores nodes
    by `outlier_scores` and removes all edges of the highest scores. A disconnected target is still
    classified by its features. The first row shows the cost of the filter on the clean graph.

    Args:
        model: The model of the report.
        report: Report from `evaluate` or `RobustnessReport.load`.
        shares: Shares of all nodes to disconnect, rounded up to whole nodes, each in (0, 1].
        neighbors: Number of nodes that a node is compared with (see `outlier_scores`).
        seed: Seed for a model that samples.

    Returns:
        One row for the clean graph and one per attack. The columns are `attack`, the `accuracy`
        without a filter in 0..1, and two per share: `after 3 %`, the accuracy in 0..1, and
        `caught by 3 %`, the share of the injected nodes that was disconnected (NaN if no node was
        injected).

    Raises:
        ConfigError: The model does not fit the clean graph, or there is nothing to compare.

    Examples:
        >>> from robust_diffusion import GCN, Budget, evaluate, filtered
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = GCN(8, 8, 7)
        >>> report = evaluate(model, data, budget=Budget(2, 3), attacks="random")
        >>> filtered(model, report, [0.1])["attack"].tolist()
        ['clean', 'random']
    """
    grows = any(attack.kind == "injection" for attack in report.attacks)
    targets = report.clean.target_nodes
    subject = subject_of(model, report.clean, targets, None, seed=seed, grows=grows)
    graphs: dict[str, Data | PerturbedGraph] = {"clean": subject.graph}
    graphs |= {attack.name: attack.graph for attack in report.attacks}
    rows = []
    with subject.tried.ready():
        for name, graph in graphs.items():
            row = {"attack": name, "accuracy": subject.accuracy_on(graph)}
            assert graph.x is not None
            assert graph.edge_index is not None
            order = outlier_scores(graph.x, graph.edge_index, neighbors).argsort(descending=True)
            injected = order >= subject.graph.num_nodes
            for share in shares:
                count = ceil(Fraction(str(share)) * len(order))  # exact in decimals
                remaining = ~torch.isin(graph.edge_index, order[:count]).any(0)
                rest = Data(x=graph.x, edge_index=graph.edge_index[:, remaining])
                row[f"after {100 * share:g} %"] = subject.accuracy_on(rest)
                caught = injected[:count].sum() / injected.sum()
                row[f"caught by {100 * share:g} %"] = caught.item()
            rows.append(row)
    return pd.DataFrame(rows)


def outlier_scores(
    x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], neighbors: int = 100
) -> Float[Tensor, " n"]:
    """Compute the local outlier factor of each node.

    Nodes are compared by the first principal components of the features, the logarithm of the
    degree, the cosine similarity to the mean of the neighbours, and the length of the features,
    each group scaled to unit variance. The factor is about 1 for a node among similar ones, and
    higher for outliers. Injected nodes resemble each other, so they are not outliers if there are
    at least `neighbors` of them.

    Reference: Breunig, Kriegel, Ng and Sander, "LOF: identifying density-based local outliers",
    SIGMOD 2000.
    """
    with needs_extra("report", "filtered"):
        from sklearn.decomposition import PCA
        from sklearn.neighbors import LocalOutlierFactor

    n, (src, dst) = len(x), edge_index
    x = x.float() if x.element_size() < 4 else x  # NumPy has no bfloat16, and a norm may overflow
    if n < 2:
        raise ConfigError(f"report: expected at least 2 nodes to compare, got {n}; drop the filter")
    around = scatter(x[src], dst, dim=0, dim_size=n, reduce="mean")
    columns = [
        torch.log1p(degree(dst, n)),
        torch.cosine_similarity(x, around),
        x.norm(dim=1),
    ]
    reduced = PCA(min(COMPONENTS, *x.shape), random_state=0).fit_transform(x.cpu().numpy())
    groups = [reduced, *(column.cpu().numpy()[:, None] for column in columns)]
    features = np.hstack([_scaled(group) for group in groups])
    factor = LocalOutlierFactor(min(neighbors, n - 1)).fit(features)
    return torch.from_numpy(-factor.negative_outlier_factor_)


def _scaled(group: NDArray[np.float32]) -> NDArray[np.float64]:
    centred: NDArray[np.float64] = group - group.mean(0, dtype=np.float64)
    spread = float(np.sqrt(centred.var(0).sum()))
    return centred / (spread or 1.0)
