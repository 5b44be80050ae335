"""The interface of a backend: sums over edges, forward and backward, without autograd."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.operators.graph import Graph

MAX_EXPONENT = 35.0
"""Largest exponent of an edge of weight 0 above the largest score that counts.

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
    ceiling: float  # upper bound likewise; infinity for none


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention of every edge, and what its derivative needs."""

    attention: Float[Tensor, " e"]  # mean over heads of the softmax
    relative: Float[Tensor, "..."]  # the softmax over w, per edge and head in the backend's order


@dataclass(frozen=True, eq=False)
class Diffused:
    """Values that the derivative of a modulated diffusion needs."""

    attended: Attended  # A(Z)
    difference: Float[Tensor, "..."]  # |z_v - z_u|^2 per edge; under `residual` A z - z per node
    norm: Float[Tensor, " n"]  # gradient norm g
    relative: Float[Tensor, " e"]  # like that of the attention, for B


class Kernels(ABC):
    """Sums over edges, of contiguous tensors; `with_weight` asks for the weights' gradient, too."""

    name: ClassVar[str]
    heads_last: ClassVar[bool]
    """Order of the indices of projections: [n, 2, c, h] if true, else [n, 2, h, c]."""

    @abstractmethod
    def dots(
        self, x: Float[Tensor, "n d"], y: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """<x_u, y_v> of every edge v -> u."""

    @abstractmethod
    def softmax(
        self, scores: Float[Tensor, "e h"], weight: Float[Tensor, " e"], graph: Graph
    ) -> Float[Tensor, "e h"]:
        """exp(s) / sum of w exp(s) over the edges that arrive at a node: the softmax over w."""

    @abstractmethod
    def attend(
        self, projected: Float[Tensor, "n 2 ..."], weight: Float[Tensor, " e"], graph: Graph
    ) -> Attended:
        """Mean over heads of the softmax of <key_u, query_v> / sqrt(c)."""

    @abstractmethod
    def attend_backward(
        self,
        grad: Float[Tensor, " e"],
        projected: Float[Tensor, "n 2 ..."],
        weight: Float[Tensor, " e"],
        graph: Graph,
        attended: Attended,
        *,
        with_weight: bool,
    ) -> tuple[Float[Tensor, "n 2 ..."], Float[Tensor, " e"] | None]:
        """Gradients by the projections and by the weights."""

    @abstractmethod
    def diffuse(
        self,
        z: Float[Tensor, "n d"],
        projected: Float[Tensor, "n 2 ..."],
        weight: Float[Tensor, " e"],
        graph: Graph,
        modulation: Modulation,
    ) -> tuple[Float[Tensor, "n d"], Diffused]:
        """Sum over v of A_uv B_uv (z_v - z_u)."""

    @abstractmethod
    def diffuse_backward(
        self,
        grad: Float[Tensor, "n d"],
        z: Float[Tensor, "n d"],
        projected: Float[Tensor, "n 2 ..."],
        weight: Float[Tensor, " e"],
        graph: Graph,
        modulation: Modulation,
        diffused: Diffused,
        *,
        with_weight: bool,
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n 2 ..."], Float[Tensor, " e"] | None]:
        """Gradients by the features, by the projections and by the weights."""

    @abstractmethod
    def spectral(
        self,
        matrices: Sequence[Float[Tensor, "a d"]],
        left: Sequence[Float[Tensor, " a"]],
        right: Sequence[Float[Tensor, " d"]],
        *,
        iterate: bool,
    ) -> tuple[Float[Tensor, "k a d"], Float[Tensor, " k"]]:
        """Matrices of one shape divided by their largest singular values, and these.

        `left` and `right` estimate the singular vectors; with `iterate` they are improved first,
        in place, by one step of the power iteration.
        """

    @abstractmethod
    def spectral_backward(
        self,
        grad: Float[Tensor, "k a d"],
        normalized: Float[Tensor, "k a d"],
        left: Float[Tensor, "k a"],
        right: Float[Tensor, "k d"],
        sigma: Float[Tensor, " k"],
    ) -> Float[Tensor, "k a d"]:
        """Gradients by the matrices, the singular vectors taken as constants."""
