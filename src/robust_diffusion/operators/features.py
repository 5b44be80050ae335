"""Features that the first layers of this package's models read without a dense matrix.

Two cases are worth it (`benchmarks/`); values and gradients are the same up to rounding:

- `SparseFeatures`: a bag of words is 99 % one value. In training, LayerNorm and Linear then take
  time linear in the other entries.
- `InjectedRows`: an injection attack only moves the rows of its new nodes. The first LayerNorm and
  Linear of all other rows are computed once.

Models pass their features through `models.stack.run_layer`. A model that is not of this package
receives a tensor; one of PyG, on the CPU, an `InjectedTensor`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.sparse import csr_matrix, vstack
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_map_only

from robust_diffusion.operators.edges import edge_cosine, inverse_length
from robust_diffusion.operators.graph import (
    EdgeValues,
    Graph,
    NodeSignal,
    gather_dst,
    gather_src,
    product_over,
)


class Features(ABC):
    """Features of n nodes, with the first operations of a model."""

    shape: Sequence[int]
    dtype: torch.dtype

    def size(self, dim: int) -> int:
        """Return the number of nodes or of features, as a tensor does."""
        return self.shape[dim]

    def __getitem__(self, index: Any) -> Tensor:
        """Return some of the features as a tensor, such as `x[nodes]`."""
        return self.dense()[index]

    @abstractmethod
    def dense(self) -> Float[Tensor, "n f"]:
        """Return the features as a tensor."""

    @abstractmethod
    def layer_norm(self, norm: nn.LayerNorm) -> "AnyFeatures":
        """Return the features after a LayerNorm."""

    @abstractmethod
    def linear(self, weight: Float[Tensor, "d f"], bias: Tensor | None = None) -> NodeSignal:
        """Compute `F.linear`."""

    def normalize(self, eps: float) -> "AnyFeatures":
        """Return the features, each row divided by its length, or by `eps` if that is larger."""
        return F.normalize(self.dense(), dim=1, eps=eps)

    def edge_cosine(self, graph: Graph) -> EdgeValues:
        """Return the cosine between the features at both ends of each edge."""
        return edge_cosine(self.dense(), graph)


LARGE = 2**27
"""Number of features (512 MiB in float32) above which first layers take them in parts; the largest
graph of a published result has fewer, and keeps its rounding."""

AnyFeatures = Float[Tensor, "n f"] | Features
"""Features of the n nodes as models of this package receive them."""


class InjectedRows(Features):
    """Rows of features that stay fixed, then the free rows of an injection.

    Args:
        fixed: The fixed rows, without gradient.
        outputs: The first Linear's output for the fixed rows; computed on a miss.
        free: The other rows; gradients flow to them.
        norm: LayerNorm before the Linear; `None` for none.
    """

    def __init__(
        self,
        fixed: Float[Tensor, "n f"],
        outputs: dict[tuple[int, int], tuple[Any, Tensor]],
        free: Float[Tensor, "k f"],
        norm: nn.LayerNorm | None = None,
    ) -> None:
        self.fixed, self.outputs, self.free, self.norm = fixed, outputs, free, norm
        self.shape = (fixed.size(0) + free.size(0), free.size(1))
        self.dtype = free.dtype

    def dense(self) -> Float[Tensor, "m f"]:
        """Concatenate the rows."""
        return self._normed(torch.cat([self.fixed, self.free]) if len(self.free) else self.fixed)

    def layer_norm(self, norm: nn.LayerNorm) -> AnyFeatures:
        """Return the rows after a LayerNorm, which is computed when the Linear is."""
        if self.norm is not None or len(norm.normalized_shape) > 1:
            return norm(self.dense())  # type: ignore[no-any-return]
        return InjectedRows(self.fixed, self.outputs, self.free, norm)

    def linear(self, weight: Float[Tensor, "d f"], bias: Tensor | None = None) -> NodeSignal:
        """Compute `F.linear`, for the fixed rows only the first time."""
        # A weight in training needs its gradient from every row; others may be new in each pass.
        if weight.requires_grad or not isinstance(weight, nn.Parameter):
            return F.linear(self.dense(), weight, bias)
        layers = self.norm, weight  # stored too, so that nothing else can reuse their ids
        key = id(self.norm), id(weight)
        if key not in self.outputs:
            # Row by row, a LayerNorm needs no second copy of features that fill the memory.
            rows = LARGE // 8 // self.shape[1] if self.fixed.numel() > LARGE else len(self.fixed)
            parts = torch.split(self.fixed, max(1, rows))
            with torch.no_grad():
                outputs = [F.linear(self._normed(part), weight, bias) for part in parts]
                self.outputs[key] = layers, torch.cat(outputs)
        return torch.cat([self.outputs[key][1], F.linear(self._normed(self.free), weight, bias)])

    def _normed(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class InjectedTensor(Tensor):
    """`InjectedRows` as a tensor, for models of PyG, which do not write into it.

    A Linear computes the fixed rows once, and a Dropout in eval mode returns its input. Any other
    operation receives all rows.
    """

    @staticmethod
    def __new__(cls, rows: InjectedRows) -> "InjectedTensor":
        """Build a tensor of the rows' size that has no memory."""
        there = rows.free.device
        return Tensor._make_wrapper_subclass(cls, rows.shape, dtype=rows.dtype, device=there)

    def __init__(self, rows: InjectedRows) -> None:
        self.rows = rows

    @cached_property
    def all_rows(self) -> Float[Tensor, "m f"]:
        """The rows as an ordinary tensor."""
        return torch.cat([self.rows.fixed, self.rows.free])

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a Linear by its rows, and anything else by all rows."""
        kwargs = kwargs or {}
        if func in WITHOUT_VALUES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if args and isinstance(x := args[0], cls):
            if func is F.linear:
                return x.rows.linear(*args[1:], **kwargs)
            if func is F.dropout and kwargs.get("training") is False:
                return x
        return cls.__torch_dispatch__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute by all rows."""
        args, kwargs = tree_map_only(cls, lambda x: x.all_rows, (args, kwargs or {}))
        return func(*args, **kwargs)


WITHOUT_VALUES = {
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.__len__,
    Tensor.is_floating_point,
    *(
        getattr(Tensor, name).__get__
        for name in ("shape", "ndim", "dtype", "device", "layout", "is_sparse")
    ),
}
"""Questions that a tensor answers without its values."""


MAX_SHARE = 0.05
"""Share of entries other than the common value up to which a sparse product is faster."""

SAMPLE = 10_001
"""Number of entries whose median is taken for the common value."""

ENTRIES_AT_A_TIME = 2**24
"""Most entries of edges' ends in memory at once: some 200 MB."""


def sparse_features(x: Float[Tensor, "n f"], *, max_share: float = MAX_SHARE) -> AnyFeatures:
    """Return features with faster first layers if nearly all entries are one value.

    Args:
        x: Features without gradient.
        max_share: Largest share of entries that differ from the common value, in [0, 1].

    Returns:
        The same features; `x` itself if more entries differ, or if it is not on the CPU, since
        dense products are fast elsewhere.
    """
    if x.device.type != "cpu" or x.numel() == 0 or x.requires_grad:
        return x
    if x.dtype not in (torch.float32, torch.float64):  # SciPy has no other type of numbers
        return x
    flat = x.flatten()
    common = flat[:: max(1, flat.numel() // SAMPLE)].median()
    if int((x != common).sum()) > max_share * x.numel():
        return x
    parts = [
        csr_matrix((part - common).numpy()) for part in torch.split(x, max(1, LARGE // x.size(1)))
    ]
    entries = SparseMatrix(vstack(parts, "csr") if len(parts) > 1 else parts[0])
    return SparseFeatures(entries, common.expand(x.size(0), 1), x=x)


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """An m x n matrix with few entries, without gradient."""

    entries: csr_matrix

    @cached_property
    def by_row(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pointers, columns and values of the entries."""
        return _arrays(self.entries)

    @cached_property
    def by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pointers, columns and values of the transpose."""
        return _arrays(self.entries.T.tocsr())

    @cached_property
    def squared(self) -> "SparseMatrix":
        """The matrix of squared entries."""
        return SparseMatrix(self.entries.power(2))

    def __matmul__(self, dense: NodeSignal) -> Float[Tensor, "m d"]:
        """Return the product, differentiable in `dense`, in O(e d)."""
        return _Product.apply(dense, self)  # type: ignore[no-any-return, no-untyped-call]

    def products(self, left: Tensor, right: Tensor) -> "SparseMatrix":
        """Return a row for each pair of rows: their products, column by column."""
        rows = self.entries
        at_a_time = max(1, ENTRIES_AT_A_TIME * rows.shape[0] // max(1, rows.nnz))
        ends = zip(torch.split(left, at_a_time), torch.split(right, at_a_time), strict=True)
        products = [rows[u.numpy()].multiply(rows[v.numpy()]) for u, v in ends]
        return SparseMatrix(vstack(products, "csr"))


def _arrays(matrix: csr_matrix) -> tuple[Tensor, Tensor, Tensor]:
    pointers, columns, values = map(torch.from_numpy, (matrix.indptr, matrix.indices, matrix.data))
    return pointers, columns, values


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return product_over(*matrix.by_row, dense.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        pointers, rows, values = ctx.matrix.by_column
        return product_over(pointers, rows, values, grad.contiguous()), None


@dataclass(frozen=True, eq=False)
class SparseFeatures(Features):
    """The features q_u (g_f (S_uf + a_u) + b_f), where S has few entries.

    A bag of words is 99 % zeros, which normalisation turns into another constant: x = c + S.
    LayerNorm is then (S - m_u) r_u, with a mean and a scale per node that stay the same in every
    epoch, and the following Linear a product with S and one with each constant.
    """

    entries: SparseMatrix  # S, n x f
    shift: Float[Tensor, "n 1"]  # a
    norm: nn.LayerNorm | None = None  # its weight is g and its bias b; 1 and 0 when absent
    scale: Float[Tensor, "n 1"] | None = None  # q; 1 when absent
    x: Float[Tensor, "n f"] | None = None  # the features; `None` after an operation
    standardized: dict[float, "SparseFeatures"] = field(default_factory=dict)  # by LayerNorm's eps

    @property
    def shape(self) -> Sequence[int]:  # type: ignore[override]
        """Number of nodes and of features."""
        return self.entries.entries.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """Type of the features."""
        return self.shift.dtype

    def dense(self) -> Float[Tensor, "n f"]:
        """Return the features as a tensor."""
        return self.linear(torch.eye(self.size(1), dtype=self.dtype)) if self.x is None else self.x

    def layer_norm(self, norm: nn.LayerNorm) -> AnyFeatures:
        """Return the features after a LayerNorm."""
        if self.x is None or norm.bias is None or norm.normalized_shape != self.shape[1:]:
            return norm(self.dense())  # type: ignore[no-any-return]
        if norm.eps not in self.standardized:
            with torch.inference_mode(mode=False):  # training may use it next
                self.standardized[norm.eps] = self._standardized(norm.eps)
        return replace(self.standardized[norm.eps], norm=norm)

    def _standardized(self, eps: float) -> "SparseFeatures":
        """Return the features, each row shifted by its mean and divided by its deviation."""
        entries = self.entries.entries.astype(np.float64)
        matrix, ones = SparseMatrix(entries), torch.ones(self.size(1), 1, dtype=torch.float64)
        mean = matrix @ ones / len(ones)
        variance = matrix.squared @ ones / len(ones) - mean.square()
        rate = (variance.clamp_min(0) + eps).rsqrt()
        entries.data = entries.data * np.repeat(rate.numpy(), np.diff(entries.indptr))
        scaled = SparseMatrix(entries.astype(self.entries.entries.dtype))
        return SparseFeatures(scaled, (-mean * rate).to(self.dtype))

    def linear(self, weight: Float[Tensor, "d f"], bias: Tensor | None = None) -> NodeSignal:
        """Compute `F.linear`."""
        if weight.size(1) != self.size(1):
            return F.linear(self.dense(), weight, bias)  # raises as for a tensor
        columns = (weight if self.norm is None else weight * self.norm.weight).t()
        out = self.entries @ columns + self.shift * columns.sum(0)
        out = out if self.norm is None else out + weight @ self.norm.bias
        out = out if self.scale is None else out * self.scale
        return out if bias is None else out + bias

    def normalize(self, eps: float) -> AnyFeatures:
        """Return the features, each row divided by its length, or by `eps` if that is larger."""
        # The bound is inside the root, whose derivative at 0 is infinite.
        return replace(self, x=None, scale=self._sums()[3].clamp_min(eps**2).rsqrt())

    def edge_cosine(self, graph: Graph) -> EdgeValues:
        """Return the cosine between the features at both ends of each edge, at any scale."""
        key = "products", self.entries
        both = graph.edges.cached(key, lambda: self.entries.products(graph.dst, graph.src))
        entries, rows, mixed, squares, bias, gain_squared = self._sums()
        # The sum over f of (g S_uf + g a_u + b) (g S_vf + g a_v + b), multiplied out.
        dots = (
            both @ gain_squared
            + gather_dst(self.shift, graph) * gather_src(entries, graph)
            + gather_dst(rows, graph) * gather_src(self.shift, graph)
            + gather_dst(mixed, graph)
            + gather_src(mixed, graph)
            + bias
        )
        inverse = inverse_length(squares.squeeze(1))
        return (dots * gather_dst(inverse, graph) * gather_src(inverse, graph)).squeeze(1)

    def _sums(self) -> tuple[Tensor, ...]:
        """Return sums of g g S, g g (S + a), g b (S + a), squares without scale, b b; and g g."""
        gain = self.shift.new_ones(self.size(1)) if self.norm is None else self.norm.weight
        offset = torch.zeros_like(gain) if self.norm is None else self.norm.bias
        columns, bias = torch.stack([gain.square(), gain * offset], 1), offset.square().sum()
        of_entries = self.entries @ columns
        of_rows = of_entries + self.shift * columns.sum(0)
        entries, rows, mixed = of_entries[:, :1], of_rows[:, :1], of_rows[:, 1:]
        squares = self.entries.squared @ columns[:, :1] + self.shift * (entries + rows)
        return entries, rows, mixed, squares + 2 * mixed + bias, bias, columns[:, :1]
