"""Models: `nn.Module`s that map (x, edge_index[, edge_weight]) to logits, and do only that."""

from robust_diffusion.models.appnp import APPNP as APPNP
from robust_diffusion.models.beltrami_guard import BeltramiGuard as BeltramiGuard
from robust_diffusion.models.gat import GAT as GAT
from robust_diffusion.models.gcn import GCN as GCN
from robust_diffusion.models.gcn_svd import GCNSVD as GCNSVD
from robust_diffusion.models.gin import GIN as GIN
from robust_diffusion.models.gnn_guard import GNNGuard as GNNGuard
from robust_diffusion.models.graph_pde import GraphPDE as GraphPDE
from robust_diffusion.models.graph_sage import GraphSAGE as GraphSAGE
from robust_diffusion.models.grb_model import GRBModel as GRBModel
from robust_diffusion.models.guard import Guard as Guard
from robust_diffusion.models.mlp import MLP as MLP
from robust_diffusion.models.raw_features import RawFeatures as RawFeatures
from robust_diffusion.models.rewiring import Rewiring as Rewiring
from robust_diffusion.models.robust_gcn import RobustGCN as RobustGCN
