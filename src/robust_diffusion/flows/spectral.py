"""Spectral normalisation of several matrices at once, as torch's parametrisation has it."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from robust_diffusion.integrators.fixed_step import RECORD, REPLAY
from robust_diffusion.operators import Kernels, kernels_for

_Vectors = tuple[Tensor, Tensor]


def normalized_weights(linears: Sequence[nn.Linear]) -> Float[Tensor, "k a d"]:
    """Weights of layers under `spectral_norm`, each divided by its largest singular value.

    The same numbers, buffers and gradients as from reading `weight` of each layer, in a third of
    the time; a flow needs them in every evaluation. In training, each call takes one more step of
    the power iteration that estimates the singular vectors.
    The layers are of one shape, under `parametrizations.spectral_norm`.
    """
    parametrizations: list[Any] = [linear.parametrizations["weight"] for linear in linears]  # type: ignore[index]
    norms = [parametrization[0] for parametrization in parametrizations]
    originals = [parametrization.original for parametrization in parametrizations]
    kernels = kernels_for(*originals)
    if kernels is None:
        return torch.stack(_by_torch(linears, norms, originals))
    return _Normalized.apply(norms, kernels, *originals)  # type: ignore[no-any-return, no-untyped-call]


def _by_torch(
    linears: Sequence[nn.Linear], norms: Sequence[Any], matrices: Sequence[Tensor]
) -> list[Tensor]:
    if (replay := REPLAY.get()) is not None:
        # The parametrisation's own steps, since what they keep must be what they kept before.
        vectors = zip(matrices, *next(replay), strict=True)
        return [matrix / torch.vdot(u, torch.mv(matrix, v)) for matrix, u, v in vectors]
    weights = [linear.weight for linear in linears]
    if (record := RECORD.get()) is not None:
        record.append(_copied(norms))
    return weights


def _copied(norms: Sequence[Any]) -> _Vectors:
    """Singular vectors as they are now: the next call changes them in place."""
    return torch.stack([norm._u for norm in norms]), torch.stack([norm._v for norm in norms])


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, norms: Sequence[Any], kernels: Kernels, *matrices: Tensor) -> Tensor:
        matrices = tuple(matrix.contiguous() for matrix in matrices)
        replay, record = REPLAY.get(), RECORD.get()
        if replay is not None:
            left, right = next(replay)
            normalized, sigma = kernels.spectral(matrices, [*left], [*right], iterate=False)
        else:
            vectors = [norm._u for norm in norms], [norm._v for norm in norms]
            normalized, sigma = kernels.spectral(matrices, *vectors, iterate=norms[0].training)
            left, right = _copied(norms)
        if record is not None:
            record.append((left, right))
        ctx.save_for_backward(normalized, left, right, sigma)
        ctx.kernels = kernels
        return normalized

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.kernels.spectral_backward(grad.contiguous(), *ctx.saved_tensors)
        return None, None, *gradients
