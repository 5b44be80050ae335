"""Models: `nn.Module`s that map (x, edge_index[, edge_weight]) to logits, and do only that."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.models.appnp import APPNP
    from robust_diffusion.models.beltrami_guard import BeltramiGuard
    from robust_diffusion.models.elastic_gnn import ElasticGNN
    from robust_diffusion.models.gat import GAT
    from robust_diffusion.models.gcn import GCN
    from robust_diffusion.models.gcn_jaccard import GCNJaccard
    from robust_diffusion.models.gcn_svd import GCNSVD
    from robust_diffusion.models.gin import GIN
    from robust_diffusion.models.gnn_guard import GNNGuard
    from robust_diffusion.models.gpr_gnn import GPRGNN
    from robust_diffusion.models.graph_pde import GraphPDE
    from robust_diffusion.models.graph_sage import GraphSAGE
    from robust_diffusion.models.grb_model import GRBModel
    from robust_diffusion.models.guard import Guard
    from robust_diffusion.models.mlp import MLP
    from robust_diffusion.models.raw_features import RawFeatures
    from robust_diffusion.models.rewiring import Rewiring
    from robust_diffusion.models.robust_gcn import RobustGCN
    from robust_diffusion.models.rung import RUNG
    from robust_diffusion.models.soft_median import SoftMedianGDC

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GCNSVD",
    "GIN",
    "GPRGNN",
    "MLP",
    "RUNG",
    "BeltramiGuard",
    "ElasticGNN",
    "GCNJaccard",
    "GNNGuard",
    "GRBModel",
    "GraphPDE",
    "GraphSAGE",
    "Guard",
    "RawFeatures",
    "Rewiring",
    "RobustGCN",
    "SoftMedianGDC",
]

if not TYPE_CHECKING:  # where a checker would take any name for one of the package
    __getattr__ = lazy_attributes(__name__)
