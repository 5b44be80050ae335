"""Options and results of the sums over edges that a backend computes."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.operators.graph import Graph

MAX_EXPONENT = 35.0
"""Largest exponent of an edge of weight 0 above the largest score of an edge that is there.

In the gradient by its weight two such exponentials are multiplied, one of A and one of B; their
product has to stay finite in single precision.
"""


@dataclass(frozen=True)
class Modulation:
    """Edge modulation B = softmax(g_u^left g_v^right) of a flow."""

    left: float  # exponent of the gradient norm at the destination
    right: float  # exponent of the gradient norm at the source
    residual: bool  # the gradient norm of the authors' code, |A z - z|, instead of the text's
    floor: float  # lower bound, positive; of what, see `operators.gradient_norm`
    ceiling: float  # upper bound of the same; infinity for none


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention of every edge, and what its derivative needs."""

    projected: Float[Tensor, "n 2 x y"]  # keys and queries
    weight: Float[Tensor, " e"]  # of the edges
    graph: Graph
    attention: Float[Tensor, " e"]  # mean over heads of the softmax
    relative: Float[Tensor, "..."]  # the softmax over w, per edge and head in the backend's order


@dataclass(frozen=True, eq=False)
class Diffused:
    """Values that the derivative of a modulated diffusion needs."""

    attended: Attended  # A(Z)
    z: Float[Tensor, "n d"]  # the features
    modulation: Modulation
    difference: Float[Tensor, "..."]  # |z_v - z_u|^2 per edge; under `residual` A z - z per node
    norm: Float[Tensor, " n"]  # gradient norm g
    relative: Float[Tensor, " e"]  # like that of the attention, for B


def check_sizes(graph: Graph, nodes: Sequence[Tensor], edges: Sequence[Tensor] = ()) -> None:
    """Refuse values of other numbers of nodes or edges: pointers would lead out of the tensors."""
    for values, size in ((nodes, graph.num_nodes), (edges, graph.num_edges)):
        for value in values:
            if value.size(0) != size:
                what = "nodes" if values is nodes else "edges"
                raise DataError(f"graph: {value.size(0)} rows of values on its {size} {what}")
