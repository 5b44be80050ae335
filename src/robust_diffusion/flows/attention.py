"""Scaled dot-product attention over the edges that arrive at a node, and its spectral norms."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrizations

from robust_diffusion.operators import (
    EdgeValues,
    Graph,
    HeadWeights,
    Kernels,
    NodeSignal,
    edge_attention,
    kernels_for,
)


def normalized_weights(linears: Sequence[nn.Linear]) -> Float[Tensor, "k a d"]:
    """Compute weights of layers under `lipschitz`, divided by their largest singular values.

    Values, buffers and gradients are the same as from reading `weight` of each layer, in a third of
    the time; a flow needs them in every evaluation. In training, each call takes one more step of
    the power iteration that estimates the singular vectors. All layers must have the same shape,
    and be under `parametrizations.spectral_norm`.
    """
    parametrizations: list[Any] = [linear.parametrizations["weight"] for linear in linears]  # type: ignore[index]
    norms = [parametrization[0] for parametrization in parametrizations]
    originals = [parametrization.original for parametrization in parametrizations]
    kernels = kernels_for(*originals)
    if kernels is None:
        return torch.stack([linear.weight for linear in linears])
    return _Normalized.apply(norms, kernels, *originals)  # type: ignore[no-any-return, no-untyped-call]


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, norms: Sequence[Any], kernels: Kernels, *matrices: Tensor) -> Tensor:
        matrices = tuple(matrix.contiguous() for matrix in matrices)
        vectors = [norm._u for norm in norms], [norm._v for norm in norms]
        normalized, sigma = kernels.spectral(matrices, *vectors, iterate=norms[0].training)
        # Copied, since the next call changes them in place.
        ctx.save_for_backward(normalized, *map(torch.stack, vectors), sigma)
        ctx.kernels = kernels
        return normalized

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.kernels.spectral_backward(grad.contiguous(), *ctx.saved_tensors)
        return None, None, *gradients


AttentionKind = Literal["trained", "resampled"]

RELEASED_WEIGHT = 1e-5
"""Every entry of W_K and W_Q in the authors' public code."""


class TrainedAttention(nn.Module):
    r"""Attention with learned matrices, the mean over heads of a softmax over incoming edges.

    .. math:: w_h([u, v]) = \mathrm{softmax}_v \langle W_K z_u, W_Q z_v \rangle / \sqrt{d_K}

    Reference: eq. (w), arXiv:2209.07754; spectral normalisation, section "Model Architecture
    with Lipschitz Constraint". For the arguments see `AttentionFlow`.
    """

    def __init__(
        self, channels: int, heads: int, attention_channels: int, *, lipschitz: bool = True
    ) -> None:
        super().__init__()
        self.heads = heads
        self.key = nn.Linear(channels, attention_channels, bias=False)
        self.query = nn.Linear(channels, attention_channels, bias=False)
        self.lipschitz = lipschitz
        if lipschitz:
            parametrizations.spectral_norm(self.key)
            parametrizations.spectral_norm(self.query)

    def weights(self) -> HeadWeights:
        """Return W_K and W_Q in the form that operators expect."""
        layers = [self.key, self.query]
        if self.lipschitz:
            matrix = normalized_weights(layers)
        else:
            matrix = torch.stack([layer.weight for layer in layers])
        return HeadWeights(matrix.view(2, self.heads, -1, matrix.size(2)))

    def forward(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Compute the attention of each edge v -> u; it sums to 1 over the edges arriving at u."""
        return edge_attention(z, self.weights(), graph)


class ResampledAttention(nn.Module):
    """Attention of the authors' public code, which rebuilds the layer in every forward pass.

    Constant matrices, never trained, and biases drawn from U(-1/sqrt(d), 1/sqrt(d)).

    Deviation: The authors' code also draws new biases at test time, so its predictions are random.
    Here, the biases of the last training pass are used at test time, and stored in the checkpoint.
    The bias on the neighbours' side is omitted, because a softmax over the neighbours cancels it
    exactly. For the arguments see `AttentionFlow`.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        channels: int,
        heads: int = 4,
        attention_channels: int = 64,
        *,
        lipschitz: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        # A constant matrix has one singular value, |entry| * sqrt(rows * columns).
        normalized = 1 / math.sqrt(channels * attention_channels)
        entry = normalized if lipschitz else RELEASED_WEIGHT
        self.register_buffer("weight", torch.full((attention_channels, channels), entry))
        self.register_buffer("bias", torch.zeros(attention_channels))
        self.resample()

    def resample(self) -> None:
        """Redraw the biases."""
        bound = 1 / math.sqrt(self.weight.size(1))
        # A new tensor, since the old one may be saved for a backward pass.
        self.bias = torch.empty_like(self.bias).uniform_(-bound, bound)

    def weights(self) -> HeadWeights:
        """Return the matrix for both W_K and W_Q, and the bias, in the form operators expect."""
        matrix = self.weight.view(1, self.heads, -1, self.weight.size(1))
        return HeadWeights(matrix, self.bias.view(self.heads, -1))

    def forward(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Compute the attention of each edge v -> u; it sums to 1 over the edges arriving at u."""
        return edge_attention(z, self.weights(), graph)
