"""Tensors that stand in for features, and compute a model's first layers in a fraction of the time.

Two cases justify this module (`docs/speed.md`); values and gradients are the same up to rounding:

- `sparse_input`: a bag of words is 99 % one value. In training, LayerNorm and Linear then take time
  linear in the other entries: four fifths of an epoch on Coauthor's 6,805 features.
- `FixedRows`: an injection attack moves the rows of its new nodes alone. The first layers of all
  other rows are computed once: two thirds of the time of an attack through a GCN on Cora.

Every model, also those of users, would have to support a wrapper or another argument. A tensor
passes through any model unchanged: `shortcut` implements the functions that can be faster, and to
every other function it is a plain tensor.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix, vstack
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.edges import edge_cosine, inverse_length
from robust_diffusion.operators.graph import (
    EdgeIndexes,
    EdgeValues,
    Graph,
    NodeSignal,
    gather_dst,
    gather_src,
    product_over,
)

ENTRIES_AT_A_TIME = 2**24
"""Most entries of edges' ends in memory at once: some 200 MB."""


@dataclass(frozen=True)
class SparseMatrix:
    """An m x n matrix stored as its e entries other than 0, sorted by row; without gradient."""

    rowptr: Int[Tensor, " m_1"]  # where each row's entries begin
    column: Int[Tensor, " e"]  # column of each entry
    value: EdgeValues  # the entries
    colptr: Int[Tensor, " n_1"]  # where each column's entries begin among those sorted by column
    row_by_column: Int[Tensor, " e"]  # row of each entry, sorted by column
    order_by_column: Int[Tensor, " e"]  # the entries' positions, sorted by column

    @classmethod
    def from_dense(cls, dense: Float[Tensor, "m n"]) -> "SparseMatrix":
        """Return a dense matrix as a sparse one."""
        row, column = dense.nonzero(as_tuple=True)
        return cls._sorted(row, column, dense[row, column], dense.shape)

    @classmethod
    def _sorted(
        cls, row: Tensor, column: Tensor, value: Tensor, shape: Sequence[int]
    ) -> "SparseMatrix":
        order = column.argsort(stable=True)
        return cls(
            rowptr=_pointers(row, shape[0]),
            column=column,
            value=value,
            colptr=_pointers(column, shape[1]),
            row_by_column=row[order],
            order_by_column=order,
        )

    def __matmul__(self, dense: NodeSignal) -> Float[Tensor, "m d"]:
        """Return the product, differentiable in `dense`, in O(e d)."""
        return _Product.apply(dense, self)  # type: ignore[no-any-return, no-untyped-call]

    def row_sums(self) -> Float[Tensor, "m 1"]:
        """Return the sum of each row."""
        ones = self.value.new_ones(self.colptr.numel() - 1, 1)
        return product_over(self.rowptr, self.column, self.value, ones)

    def squared(self) -> "SparseMatrix":
        """Return the matrix of squared entries."""
        return replace(self, value=self.value.square())

    def with_rows_times(self, scale: Float[Tensor, "m 1"]) -> "SparseMatrix":
        """Return the matrix with each row multiplied by its scale."""
        counts = self.rowptr.diff()
        return replace(self, value=self.value * scale.squeeze(1).repeat_interleave(counts))

    def products_along(self, graph: Graph) -> "SparseMatrix":
        """Return a row for each edge: the products of the two ends' entries, column by column.

        They are computed once per edge list, and cached as long as that is in use.
        """
        if graph.indexes not in self._along:
            with torch.inference_mode(mode=False):
                self._along[graph.indexes] = self._products(graph.dst, graph.src)
        return self._along[graph.indexes]

    @cached_property
    def _along(self) -> "WeakKeyDictionary[EdgeIndexes, SparseMatrix]":
        return WeakKeyDictionary()

    def _products(self, left: Tensor, right: Tensor) -> "SparseMatrix":
        shape = self.rowptr.numel() - 1, self.colptr.numel() - 1
        rows = csr_matrix((self.value, self.column, self.rowptr), shape)
        at_a_time = max(1, ENTRIES_AT_A_TIME * shape[0] // max(1, rows.nnz))
        ends = zip(torch.split(left, at_a_time), torch.split(right, at_a_time), strict=True)
        products = vstack([rows[u.numpy()].multiply(rows[v.numpy()]) for u, v in ends], "csr")
        rowptr = torch.from_numpy(products.indptr).long()
        edge = torch.arange(left.numel()).repeat_interleave(rowptr.diff())
        column = torch.from_numpy(products.indices).long()
        return self._sorted(edge, column, torch.from_numpy(products.data), products.shape)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return product_over(matrix.rowptr, matrix.column, matrix.value, dense.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        matrix: SparseMatrix = ctx.matrix
        value = matrix.value.index_select(0, matrix.order_by_column)
        grad = product_over(matrix.colptr, matrix.row_by_column, value, grad.contiguous())
        return grad, None


def _pointers(index: Tensor, size: int) -> Tensor:
    counts = torch.bincount(index, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


MAX_SHARE = 0.05
"""Share of entries other than the common value up to which a sparse product is faster."""

SAMPLE = 10_001
"""Number of entries whose median is taken for the common value."""

_ATTRIBUTES = ("shape", "ndim", "dtype", "device", "requires_grad")

ABOUT = frozenset(
    [Tensor.size, Tensor.dim, Tensor.numel, *(getattr(Tensor, a).__get__ for a in _ATTRIBUTES)]
)
"""Properties of a tensor that need none of its entries."""

_Own = TypeVar("_Own", bound="SelectiveTensor")


class SelectiveTensor(Tensor):
    """A tensor with faster implementations of some functions; to all others it is a plain tensor.

    `torch.autograd.Function.apply` does not dispatch to subclasses. A tensor whose storage does not
    hold its entries must therefore be part of the autograd graph itself, as `standing_for` makes
    it.
    """

    make: Callable[[], Tensor]
    made: dict[bool, tuple[Tensor, object]]

    @classmethod
    def of(cls: type[_Own], x: Tensor) -> _Own:
        """Return `x` as a tensor of this class, which holds its entries."""
        out = x.as_subclass(cls)
        out.make, out.made = lambda: x, dict.fromkeys((True, False), (x, _state(x)))
        return out

    @classmethod
    def standing_for(
        cls: type[_Own],
        make: Callable[[], Tensor],
        shape: Sequence[int],
        *,
        like: Tensor,
        sources: Sequence[Tensor],
    ) -> _Own:
        """Return a tensor whose entries are computed on first use; its storage holds NaN.

        `like` sets type and device; `sources` are the tensors to which `make` is differentiable.
        """
        out = cls.of(_StandIn.apply(make, like, shape, *sources))  # type: ignore[no-untyped-call]
        out.make, out.made = make, {}
        return out

    def plain(self) -> Tensor:
        """Return the same entries as a plain tensor."""
        if (changed := self.changed()) is not None:
            return changed
        with_gradient = torch.is_grad_enabled()  # a tensor made without cannot be trained on
        if with_gradient not in self.made:
            # An inference tensor has no version that would reveal a change by a model.
            with torch.inference_mode(mode=False), torch.set_grad_enabled(with_gradient):
                made = self.make()
            self.made[with_gradient] = made, _state(made)
        return self.made[with_gradient][0]

    def changed(self) -> Tensor | None:
        """Return the plain tensor if a model changed it in place, so that no shortcut holds."""
        made = self.made.values()
        return next((tensor for tensor, state in made if _state(tensor) != state), None)

    @abstractmethod
    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return `func(self, *args, **kwargs)`, or `None` to leave it to the plain tensor."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `func` on behalf of PyTorch, by a shortcut if there is one."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in ABOUT:
                return func(*args, **kwargs)
            if args and isinstance(args[0], cls) and args[0].changed() is None:
                others = (*args[1:], *kwargs.values())
                if not any(isinstance(other, cls) for other in others):
                    taken = args[0].shortcut(func, args[1:], kwargs)
                    if taken is not None:
                        return taken
            plain = [_plain(item) for item in args]
            result = func(*plain, **{key: _plain(item) for key, item in kwargs.items()})
        # A function that changes nothing, such as a move to the same device, keeps the stand-in.
        stays = plain and result is plain[0] and isinstance(args[0], SelectiveTensor)
        return args[0] if stays and args[0].changed() is None else result


def _state(tensor: Tensor) -> object:
    """Return a state that differs once a tensor was changed in place or requires a gradient."""
    return None if tensor.is_inference() else tensor._version, tensor.requires_grad


def _plain(item: Any) -> Any:
    if isinstance(item, SelectiveTensor):
        return item.plain()
    if isinstance(item, list | tuple):
        return type(item)(_plain(part) for part in item)
    return item


class _StandIn(torch.autograd.Function):
    """Placeholder of the entries' shape that passes their gradient on to their sources."""

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[], Tensor], like: Tensor, shape: Sequence[int], *sources: Tensor
    ) -> Tensor:
        ctx.make = make
        ctx.save_for_backward(*sources)
        return like.new_full([1] * len(shape), torch.nan).expand(*shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            made = ctx.make()  # again, since the first tensor's autograd graph may be freed
        sources = [source for source in ctx.saved_tensors if source.requires_grad]
        gradients = iter(torch.autograd.grad(made, sources, grad))
        parts = (next(gradients) if source.requires_grad else None for source in ctx.saved_tensors)
        return None, None, None, *parts


MOST_KNOWN = 16
"""Most layers whose output for fixed rows is cached, the latest ones."""


class FixedRows:
    """Rows of features that stay fixed, with the cached outputs of a model's first layers.

    Layers that treat each row separately are computed for these rows once, and from then on for the
    new rows only.

    Args:
        x: The fixed rows, without gradient.
        whole: Concatenate the rows in each step, for a model that reads the storage.
    """

    def __init__(self, x: Float[Tensor, "n f"], *, whole: bool = False) -> None:
        self.x = x
        self.whole = whole
        # The tensors of the key are stored too, so that no other tensor can reuse their ids.
        self._known: dict[tuple[Any, ...], tuple[Any, FixedRows]] = {}

    def followed_by(self, free: Float[Tensor, "k f"]) -> Float[Tensor, "m f"]:
        """Return these rows, then `free`, as one tensor; gradients flow to `free`."""
        return torch.cat([self.x, free]) if self.whole else _Rows.together(self, free)

    def under(self, layer: Callable[[Tensor], Tensor], *identity: Any) -> "FixedRows":
        """Return the output of a layer for these rows.

        Args:
            layer: Function that treats each row separately.
            identity: Cache key of the layer: its name, weights and numbers.
        """
        key = tuple(
            (id(item), item._version) if isinstance(item, Tensor) else item for item in identity
        )
        known = self._known.pop(key, None)
        if known is None:
            with torch.no_grad():
                known = identity, FixedRows(layer(self.x))
        self._known[key] = known
        # Weights that a model computes in each pass never occur again.
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return known[1]


class _Rows(SelectiveTensor):
    """The tensor that `FixedRows.followed_by` returns; the rows are concatenated on first use."""

    fixed: FixedRows
    free: Tensor

    @classmethod
    def together(cls, fixed: FixedRows, free: Tensor) -> Tensor:
        shape = (fixed.x.size(0) + free.size(0), *free.shape[1:])
        rows = cls.standing_for(
            lambda: torch.cat([fixed.x, free]), shape, like=free, sources=[free]
        )
        rows.fixed, rows.free = fixed, free
        return rows

    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        others = (*args, *kwargs.values())
        if func is F.layer_norm and len(kwargs.get("normalized_shape", args[:1] and args[0])) > 1:
            return None  # it normalizes across rows
        # A weight in training needs its gradient from every row.
        if func not in (F.linear, F.layer_norm) or any(
            isinstance(o, Tensor) and o.requires_grad for o in others
        ):
            return None
        fixed = self.fixed.under(lambda x: func(x, *args, **kwargs), func, *map(_hashable, others))
        return self.together(fixed, func(self.free, *args, **kwargs))


def _hashable(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def sparse_input(x: Float[Tensor, "n f"], *, max_share: float = MAX_SHARE) -> Float[Tensor, "n f"]:
    """Return the features as a tensor with faster first layers if nearly all entries are one value.

    A bag of words is 99 % zeros, which normalisation turns into another constant: x = c + S, with
    few entries in S. LayerNorm is then (S - m_u) r_u, with a mean and a scale per node that stay
    the same in every epoch, and the following Linear a product with S and one with each constant.

    Args:
        x: Features without gradient.
        max_share: Largest share of entries that differ from the common value, in [0, 1].

    Returns:
        A tensor of the same entries; `x` itself if more differ, or if it is not on the CPU, since
        dense products are fast elsewhere.
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
    """The matrix q_u (g_f (S_uf + a_u) + b_f), where S has few entries."""

    entries: SparseMatrix  # S, n x f
    shift: Float[Tensor, "n 1"]  # a, n x 1
    width: int  # f
    gain: Float[Tensor, " f"] | None = None  # g; 1 when absent
    offset: Float[Tensor, " f"] | None = None  # b; 0 when absent
    scale: Float[Tensor, "n 1"] | None = None  # q, n x 1; 1 when absent

    @property
    def is_constant(self) -> bool:
        """Whether no operation has been applied to it."""
        return self.gain is None and self.offset is None and self.scale is None

    def standardized(self, eps: float) -> "_Affine":
        """Return the matrix with each row shifted by its mean and divided by its deviation."""
        entries, width = replace(self.entries, value=self.entries.value.double()), self.width
        mean = entries.row_sums() / width
        variance = entries.squared().row_sums() / width - mean.square()
        rate = (variance.clamp_min(0) + eps).rsqrt()
        scaled = entries.with_rows_times(rate)
        dtype = self.shift.dtype
        entries = replace(scaled, value=scaled.value.to(dtype))
        return _Affine(entries, (-mean * rate).to(dtype), width)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the matrix times the transpose of `weight`, plus `bias`."""
        columns = (weight if self.gain is None else weight * self.gain).t()
        out = self.entries @ columns + self.shift * columns.sum(0)
        if self.offset is not None:
            out = out + weight @ self.offset
        if self.scale is not None:
            out = out * self.scale
        return out if bias is None else out + bias

    def normalized(self, eps: float) -> "_Affine":
        """Return the matrix with each row divided by its length, or by `eps` if that is larger."""
        # The bound is inside the root, whose derivative at 0 is infinite.
        return replace(self, scale=self._squares(self._sums()).clamp_min(eps**2).rsqrt())

    def edge_cosine(self, graph: Graph) -> Tensor:
        """Return the cosine between the rows at both ends of each edge, at any scale."""
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
        """Return the squared length of each row, without its scale."""
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
    """A tensor that knows its few entries; its methods implement functions with their arguments."""

    affine: _Affine
    standardized: dict[float, _Affine]

    @classmethod
    def knowing(cls, affine: _Affine, x: Tensor) -> "_SparseInput":
        out = cls.of(x)
        out.affine, out.standardized = affine, {}
        return out

    @classmethod
    def pending(cls, affine: _Affine, make: Callable[[], Tensor]) -> "_SparseInput":
        """Return a tensor whose entries are computed on first use."""
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
        """Compute `F.layer_norm`."""
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
        """Compute `F.normalize`."""
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
