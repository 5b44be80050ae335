"""Interface of the backends in C++ and Triton."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.operators.graph import Graph

MAX_EXPONENT = 35.0
"""Largest exponent of an edge of weight 0, relative to the highest score of edges of other weights.

The gradient by its weight multiplies two such exponentials, one of A and one of B; their product
has to stay finite in single precision.
"""


@dataclass(frozen=True)
class Modulation:
    """Edge modulation B = softmax(g_u^left g_v^right) of a flow."""

    left: float  # exponent of the gradient norm at the destination
    right: float  # exponent of the gradient norm at the source
    residual: bool  # the gradient norm of the authors' code, |A z - z|, instead of the text's
    floor: float  # lower bound, positive; see `operators.gradient_norm`
    ceiling: float  # upper bound of the same; infinity for none


@dataclass(frozen=True, eq=False)
class PropagationSteps:
    """A propagation of predictions H: sum over k of w_k A^k H, or the steps of `ElasticGNN`."""

    weights: Float[Tensor, " k"] | None = None  # w_0, w_1, ...; `None` for elastic steps
    lambda1: float = 0.0  # see `ElasticGNN` for these
    lambda2: float = 0.0
    num_steps: int = 0


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention of every edge, and the tensors that its derivative needs."""

    projected: Float[Tensor, "n k x y"]  # keys and queries, or both at once
    bias: Float[Tensor, "x y"] | None  # added to the keys
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
    """Raise a `DataError` for values of another size, whose pointers would leave the tensors."""
    for values, size in ((nodes, graph.num_nodes), (edges, graph.num_edges)):
        for value in values:
            if value.size(0) != size:
                what = "nodes" if values is nodes else "edges"
                raise DataError(f"graph: {value.size(0)} rows of values on its {size} {what}")


SMALLEST_LENGTH = 1e-12
"""Smallest divisor of a vector, as in `torch.nn.functional.normalize`."""

Tensors = Sequence[Tensor]


class Kernels(ABC):
    """Sums over edges, and whole right-hand sides fused with their derivatives, without autograd.

    All tensors are contiguous. Nodes have `z`, `x`, `y` and gradients [n, d], and `projected`
    [n, k, h, c] with k = 2, the keys and queries of h heads, or k = 1 if one projection is both;
    `bias` [h, c] is added to the keys. Edges have `weight` [e] and `scores` [e, h]. `with_weight`
    requests the gradient by the weights, too.
    """

    name: str
    heads_last = False
    """Order of the indices of projections: [n, k, c, h] if true, and [c, h] of the bias."""

    @abstractmethod
    def dots(self, x: Tensor, y: Tensor, graph: Graph) -> Tensor:
        """Return <x_u, y_v> of every edge v -> u, [e]."""

    @abstractmethod
    def softmax(self, scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
        """Return exp(s) / sum of w exp(s) over the edges that arrive at a node: softmax over w."""

    @abstractmethod
    def attend(
        self, projected: Tensor, bias: Tensor | None, weight: Tensor, graph: Graph
    ) -> Attended:
        """Return the mean over heads of the softmax of <key_u, query_v> / sqrt(c)."""

    @abstractmethod
    def attend_backward(
        self, grad: Tensor, attended: Attended, *, with_weight: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients by keys and queries, [n, 2, ...], and by the weights."""

    @abstractmethod
    def diffuse(
        self,
        z: Tensor,
        projected: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        graph: Graph,
        modulation: Modulation,
    ) -> tuple[Tensor, Diffused]:
        """Return the sum over v of A_uv B_uv (z_v - z_u), [n, d], and values for its derivative."""

    @abstractmethod
    def diffuse_backward(
        self, grad: Tensor, diffused: Diffused, *, with_weight: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the gradients by features, by keys and queries, and by the weights."""

    @abstractmethod
    def spectral(
        self, matrices: Tensors, left: Tensors, right: Tensors, *, iterate: bool
    ) -> tuple[Tensor, Tensor]:
        """Return matrices divided by their largest singular values, and these values [k].

        `left` and `right`, [a] and [d] each, estimate the singular vectors; with `iterate` one step
        of the power iteration improves them first, in place.
        """

    @abstractmethod
    def spectral_backward(
        self, grad: Tensor, normalized: Tensor, left: Tensor, right: Tensor, sigma: Tensor
    ) -> Tensor:
        """Return the gradients by the matrices, the singular vectors taken as constants."""
