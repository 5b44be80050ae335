"""Models: `nn.Module`s that map (x, edge_index[, edge_weight]) to logits."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.models.convolutional import GAT as GAT
    from robust_diffusion.models.convolutional import GCN as GCN
    from robust_diffusion.models.convolutional import GIN as GIN
    from robust_diffusion.models.convolutional import GraphSAGE as GraphSAGE
    from robust_diffusion.models.convolutional import RobustGCN as RobustGCN
    from robust_diffusion.models.defences import GCNSVD as GCNSVD
    from robust_diffusion.models.defences import GCNJaccard as GCNJaccard
    from robust_diffusion.models.defences import GNNGuard as GNNGuard
    from robust_diffusion.models.defences import SoftMedianGDC as SoftMedianGDC
    from robust_diffusion.models.graph_pde import BeltramiGuard as BeltramiGuard
    from robust_diffusion.models.graph_pde import GraphPDE as GraphPDE
    from robust_diffusion.models.grb_model import GRBModel as GRBModel
    from robust_diffusion.models.guard import Guard as Guard
    from robust_diffusion.models.propagating import APPNP as APPNP
    from robust_diffusion.models.propagating import GPRGNN as GPRGNN
    from robust_diffusion.models.propagating import MLP as MLP
    from robust_diffusion.models.propagating import RUNG as RUNG
    from robust_diffusion.models.propagating import ElasticGNN as ElasticGNN
    from robust_diffusion.models.raw_features import RawFeatures as RawFeatures
    from robust_diffusion.models.rewiring import Rewiring as Rewiring

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
