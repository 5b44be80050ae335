"""A drawn graph as PyG users have theirs: a `Data` with masks, and nothing of this package."""

from typing import Any

import torch
from torch_geometric.data import Data

NODES, FEATURES, CLASSES = 120, 8, 7


def drawn_data(seed: int = 0, **changes: Any) -> Data:
    """Planetoid-like: x, y, undirected edges, masks of 60, 20 and 40 nodes."""
    from robust_diffusion.data.sources import citation_like_graph

    graph = citation_like_graph(NODES, 300, FEATURES, feature_signal=1.0, seed=seed)
    data = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index)
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))
    for part, nodes in zip(("train", "val", "test"), order.split([60, 20, 40]), strict=True):
        data[f"{part}_mask"] = torch.isin(torch.arange(NODES), nodes)
    for key, value in changes.items():
        if value is None:
            del data[key]
        else:
            data[key] = value
    return data
