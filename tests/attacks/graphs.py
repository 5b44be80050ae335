"""A small graph to attack, and models to attack it with."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.models import GCN


def small_graph() -> Data:
    """200 nodes, 16 normalised features, 7 classes, 60 test nodes."""
    graph = citation_like_graph(200, 400, 16, feature_signal=0.8)
    graph.x = feature_scale(graph.x).normalize(graph.x)
    return graph


def train(
    model: nn.Module, graph: Data, nodes: Tensor, *, epochs: int, learning_rate: float = 0.02
) -> Any:
    """The model, trained on these nodes, in eval mode."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        loss = F.cross_entropy(model(graph.x, graph.edge_index)[nodes], graph.y[nodes])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def trained_gcn(graph: Data) -> GCN:
    """A GCN that knows the train nodes."""
    with torch.random.fork_rng(), torch.enable_grad():  # a model may ask for it as it predicts
        torch.manual_seed(0)
        model = GCN(graph.num_features, 16, out_channels=graph.num_classes, num_layers=2)
        return train(model, graph, graph.index_train, epochs=60)


def mean_of_neighbours(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Differentiable logits without parameters: a node's features plus those around it."""
    src, dst = edge_index
    sent = 0.1 * x[src]
    if edge_weight is not None:
        sent = edge_weight[:, None] * sent
    return 3 * x.index_add(0, dst, sent)[:, :7]


# Models that hide their gradient.


def rounded(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """The slope of rounding is 0."""
    return (mean_of_neighbours(x, edge_index, edge_weight) * 50).round() / 50


def without_gradient(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """It takes edge weights, and looks away."""
    return mean_of_neighbours(x.detach(), edge_index)


def nan_gradient(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """The root has no slope at 0."""
    total = x.sum() if edge_weight is None else x.sum() + edge_weight.sum()
    return mean_of_neighbours(x, edge_index, edge_weight) + (0 * total).sqrt()
