"""Models: `nn.Module`s that map (x, edge_index[, edge_weight]) to logits, and do only that."""

from robust_diffusion.models.gcn import GCN
from robust_diffusion.models.graph_pde import GraphPDE
from robust_diffusion.models.rewiring import Rewiring

__all__ = ["GCN", "GraphPDE", "Rewiring"]
