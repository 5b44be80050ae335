"""Features that are nearly all of one value, multiplied in time linear in the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.operators import (
    Graph,
    SelectiveTensor,
    SparseMatrix,
    edge_cosine,
    gather_dst,
    gather_src,
    inverse_length,
)

MAX_SHARE = 0.05
"""Share of entries other than the common value up to which a sparse product is the faster one."""

SAMPLE = 10_001
"""Number of entries whose median is taken for the common value."""


def sparse_input(x: Float[Tensor, "n f"], *, max_share: float = MAX_SHARE) -> Float[Tensor, "n f"]:
    """The same features, with faster first layers where nearly all entries are one value.

    A bag of words is 99 % zeros, which normalisation turns into another constant: x = c + S, with
    few entries in S. Then LayerNorm is (S - m_u) r_u, with a mean and a scale per node that no
    epoch changes, and the Linear behind it a product with S and one with each constant. On
    Coauthor, of 6,805 features, these two layers were four fifths of an epoch. Values and
    gradients are the same to rounding; any other operation sees the plain tensor.

    Args:
        x: Features without gradient.
        max_share: Largest share of entries that differ from the common value, in [0, 1].

    Returns:
        A tensor of the same entries; `x` itself where more differ, or where it is not on the CPU,
        since dense products are fast elsewhere.
    """
    if x.device.type != "cpu" or x.numel() == 0 or x.requires_grad:
        return x
    flat = x.flatten()
    common = flat[:: max(1, flat.numel() // SAMPLE)].median()
    differs = x - common
    if int(differs.count_nonzero()) > max_share * x.numel():
        return x
    affine = _Affine(SparseMatrix.from_dense(differs), common.expand(x.size(0), 1), x.size(1))
    return _SparseInput.knowing(affine, x)


@dataclass(frozen=True)
class _Affine:
    """The matrix q_u (g_f (S_uf + a_u) + b_f), S having few entries."""

    entries: SparseMatrix  # S, n x f
    shift: Float[Tensor, "n 1"]  # a, n x 1
    width: int  # f
    gain: Float[Tensor, " f"] | None = None  # g; 1 when absent
    offset: Float[Tensor, " f"] | None = None  # b; 0 when absent
    scale: Float[Tensor, "n 1"] | None = None  # q, n x 1; 1 when absent

    @property
    def is_constant(self) -> bool:
        """No operation has been applied to it."""
        return self.gain is None and self.offset is None and self.scale is None

    def standardized(self, eps: float) -> "_Affine":
        """Each row less its mean, by its standard deviation."""
        entries, width = replace(self.entries, value=self.entries.value.double()), self.width
        mean = entries.row_sums() / width
        variance = entries.squared().row_sums() / width - mean.square()
        rate = (variance.clamp_min(0) + eps).rsqrt()
        scaled = entries.with_rows_times(rate)
        dtype = self.shift.dtype
        entries = replace(scaled, value=scaled.value.to(dtype))
        return _Affine(entries, (-mean * rate).to(dtype), width)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """This matrix times the transpose of `weight`, plus `bias`."""
        columns = (weight if self.gain is None else weight * self.gain).t()
        out = self.entries @ columns + self.shift * columns.sum(0)
        if self.offset is not None:
            out = out + weight @ self.offset
        if self.scale is not None:
            out = out * self.scale
        return out if bias is None else out + bias

    def normalized(self, eps: float) -> "_Affine":
        """Each row by its length, or by `eps` if that is more."""
        # The bound is inside the root, whose derivative at 0 is infinite.
        return replace(self, scale=self._squares(self._sums()).clamp_min(eps**2).rsqrt())

    def edge_cosine(self, graph: Graph) -> Tensor:
        """Cosine of the angle between the rows at both ends of each edge, whatever their scale."""
        sums = self._sums()
        # The sum over f of (g S_uf + g a_u + b) (g S_vf + g a_v + b), multiplied out.
        dots = (
            self.entries.products_along(graph) @ sums.gain_squared
            + gather_dst(self.shift, graph) * gather_src(sums.entries, graph)
            + gather_dst(sums.rows, graph) * gather_src(self.shift, graph)
            + gather_dst(sums.offset, graph)
            + gather_src(sums.offset, graph)
            + sums.offset_squared
        )
        inverse = inverse_length(self._squares(sums).squeeze(1))
        return (dots * gather_dst(inverse, graph) * gather_src(inverse, graph)).squeeze(1)

    def _squares(self, sums: "_Sums") -> Tensor:
        """Squared length of each row, its scale left out."""
        squares = self.entries.squared() @ sums.gain_squared
        shifted = self.shift * (sums.entries + sums.rows)
        return squares + shifted + 2 * sums.offset + sums.offset_squared

    def _sums(self) -> "_Sums":
        gain = self.shift.new_ones(self.width) if self.gain is None else self.gain
        offset = torch.zeros_like(gain) if self.offset is None else self.offset
        columns = torch.stack([gain.square(), gain * offset], 1)
        of_entries = self.entries @ columns
        of_rows = of_entries + self.shift * columns.sum(0)
        return _Sums(
            gain_squared=columns[:, :1],
            entries=of_entries[:, :1],
            rows=of_rows[:, :1],
            offset=of_rows[:, 1:],
            offset_squared=offset.square().sum(),
        )


class _Sums(NamedTuple):
    """Sums over features that make up lengths and dot products of the rows of an `_Affine`."""

    gain_squared: Float[Tensor, "f 1"]
    entries: Float[Tensor, "n 1"]  # g g S
    rows: Float[Tensor, "n 1"]  # g g (S + a)
    offset: Float[Tensor, "n 1"]  # g b (S + a)
    offset_squared: Float[Tensor, ""]


class _SparseInput(SelectiveTensor):
    """A tensor that knows its few entries.

    A shortcut has the arguments of the function that it stands for, and returns `None` where the
    function must be applied to the plain tensor.
    """

    affine: _Affine
    standardized: dict[float, _Affine]

    @classmethod
    def knowing(cls, affine: _Affine, x: Tensor) -> "_SparseInput":
        out = cls.of(x)
        out.affine, out.standardized = affine, {}
        return out

    @classmethod
    def pending(cls, affine: _Affine, make: Callable[[], Tensor]) -> "_SparseInput":
        """A tensor whose entries are computed when first needed."""
        trained = [part for part in (affine.gain, affine.offset) if part is not None]
        shape = (affine.shift.size(0), affine.width)
        out = cls.standing_for(make, shape, like=affine.shift, sources=trained)
        out.affine, out.standardized = affine, {}
        return out

    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        known = _KNOWN.get(func)
        return None if known is None else known(self, *args, **kwargs)

    def layer_norm(
        self,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor | None:
        """`F.layer_norm`."""
        if not self.affine.is_constant or list(normalized_shape) != [self.affine.width]:
            return None
        if eps not in self.standardized:
            self.standardized[eps] = self.affine.standardized(eps)
        affine = replace(self.standardized[eps], gain=weight, offset=bias)
        return self.pending(
            affine, lambda: F.layer_norm(self.make(), normalized_shape, weight, bias, eps)
        )

    def normalize(
        self, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
    ) -> Tensor | None:
        """`F.normalize`."""
        if p != 2 or dim not in (1, -1) or out is not None or self.affine.scale is not None:
            return None
        return self.pending(
            self.affine.normalized(eps), lambda: F.normalize(self.make(), dim=1, eps=eps)
        )


_KNOWN: Mapping[Callable[..., Any], Callable[..., Tensor | None]] = {
    F.layer_norm: _SparseInput.layer_norm,
    F.linear: lambda x, *args, **kwargs: x.affine.linear(*args, **kwargs),
    F.normalize: _SparseInput.normalize,
    edge_cosine: lambda x, graph: x.affine.edge_cosine(graph),
}
