"""Operators on graphs: pure functions of tensors, the mathematics every flow is built from."""

from robust_diffusion.operators.attention import HeadWeights, edge_attention
from robust_diffusion.operators.calculus import (
    GradientNorm,
    gradient_norm,
    graph_divergence,
    graph_gradient,
    graph_laplacian,
)
from robust_diffusion.operators.diffusion import edge_modulation, modulated_diffusion
from robust_diffusion.operators.edges import (
    edge_cosine,
    edge_dot,
    edge_softmax,
    edge_squared_distance,
    inverse_length,
    spmm,
)
from robust_diffusion.operators.graph import (
    EdgeValues,
    Graph,
    NodeSignal,
    gather_dst,
    gather_src,
    graph_with_degree,
    mean_weights,
    segment_sum,
    symmetric_weights,
)
from robust_diffusion.operators.kernels import (
    Backend,
    Kernels,
    Modulation,
    backend_set,
    current_backend,
    kernels_for,
    set_backend,
)
from robust_diffusion.operators.low_rank import Gradient, LowRank, low_rank_product, truncated_svd
from robust_diffusion.operators.random_walk import pagerank_graph, return_probabilities
from robust_diffusion.operators.sparse_matrix import SparseMatrix
from robust_diffusion.operators.stand_ins import FixedRows, SelectiveTensor, sparse_input

__all__ = [
    "Backend",
    "EdgeValues",
    "FixedRows",
    "Gradient",
    "GradientNorm",
    "Graph",
    "HeadWeights",
    "Kernels",
    "LowRank",
    "Modulation",
    "NodeSignal",
    "SelectiveTensor",
    "SparseMatrix",
    "backend_set",
    "current_backend",
    "edge_attention",
    "edge_cosine",
    "edge_dot",
    "edge_modulation",
    "edge_softmax",
    "edge_squared_distance",
    "gather_dst",
    "gather_src",
    "gradient_norm",
    "graph_divergence",
    "graph_gradient",
    "graph_laplacian",
    "graph_with_degree",
    "inverse_length",
    "kernels_for",
    "low_rank_product",
    "mean_weights",
    "modulated_diffusion",
    "pagerank_graph",
    "return_probabilities",
    "segment_sum",
    "set_backend",
    "sparse_input",
    "spmm",
    "symmetric_weights",
    "truncated_svd",
]
