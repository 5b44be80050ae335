"""Operators on graphs: pure functions of tensors, the mathematics every flow is built from."""

from robust_diffusion.operators.calculus import (
    GradientNorm,
    gradient_norm,
    graph_divergence,
    graph_gradient,
    graph_laplacian,
)
from robust_diffusion.operators.edges import edge_dot, edge_softmax, edge_squared_distance
from robust_diffusion.operators.graph import Graph
from robust_diffusion.operators.low_rank import LowRank, low_rank_product, truncated_svd
from robust_diffusion.operators.segments import gather_dst, gather_src, segment_sum
from robust_diffusion.operators.spmm import spmm

__all__ = [
    "GradientNorm",
    "Graph",
    "LowRank",
    "edge_dot",
    "edge_softmax",
    "edge_squared_distance",
    "gather_dst",
    "gather_src",
    "gradient_norm",
    "graph_divergence",
    "graph_gradient",
    "graph_laplacian",
    "low_rank_product",
    "segment_sum",
    "spmm",
    "truncated_svd",
]
