"""Size, homophily and feature range of a graph."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.utils import homophily

from robust_diffusion.data.datamodule import GraphDataModule


@dataclass(frozen=True)
class Statistics:
    """Size and shape of a graph."""

    nodes: int  # number of nodes
    edges: int  # number of undirected edges
    features: int  # number of features
    classes: int  # number of classes
    feature_range: tuple[float, float]  # smallest and largest normalised feature
    homophily: float  # share of the edges inside a class, in 0..1
    largest_class: float  # its share among the target nodes, in 0..1
    split: str  # hash of the split


def statistics(datamodule: GraphDataModule) -> Statistics:
    """The statistics of the graph that a data module serves."""
    graph = datamodule.graph
    assert graph.x is not None
    assert graph.edge_index is not None
    assert isinstance(graph.y, Tensor)
    low, high = torch.aminmax(graph.x)
    target_labels = graph.y[datamodule.target_nodes]
    return Statistics(
        nodes=graph.x.size(0),
        edges=graph.edge_index.size(1) // 2,
        features=datamodule.num_features,
        classes=datamodule.num_classes,
        feature_range=(low.item(), high.item()),
        homophily=float(homophily(graph.edge_index, graph.y)),
        largest_class=target_labels.bincount().max().item() / target_labels.numel(),
        split=datamodule.split_hash,
    )
