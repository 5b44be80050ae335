"""A constant matrix of few entries, and its product with a dense one."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.products import product_over


@dataclass(frozen=True)
class SparseMatrix:
    """An m x n matrix by its e entries other than 0, sorted by row; without gradient.

    Args:
        rowptr: Where each row's entries begin.
        column: Column of each entry.
        value: The entries.
        colptr: Where each column's entries begin among those sorted by column.
        row_by_column: Row of each entry, sorted by column.
        order_by_column: The entries' positions, sorted by column.
    """

    rowptr: Int[Tensor, " m_1"]
    column: Int[Tensor, " e"]
    value: Float[Tensor, " e"]
    colptr: Int[Tensor, " n_1"]
    row_by_column: Int[Tensor, " e"]
    order_by_column: Int[Tensor, " e"]

    @classmethod
    def from_dense(cls, dense: Float[Tensor, "m n"]) -> "SparseMatrix":
        """The entries of a dense matrix that are not 0."""
        row, column = dense.nonzero(as_tuple=True)
        order = column.argsort(stable=True)
        return cls(
            rowptr=_pointers(row, dense.size(0)),
            column=column,
            value=dense[row, column],
            colptr=_pointers(column, dense.size(1)),
            row_by_column=row[order],
            order_by_column=order,
        )

    def __matmul__(self, dense: Float[Tensor, "n d"]) -> Float[Tensor, "m d"]:
        """The product, differentiable in `dense`, in O(e d)."""
        return _Product.apply(dense, self)  # type: ignore[no-any-return, no-untyped-call]

    def row_sums(self) -> Float[Tensor, "m 1"]:
        """Sum of each row."""
        ones = self.value.new_ones(self.colptr.numel() - 1, 1)
        return product_over(self.rowptr, self.column, self.value, ones)

    def squared(self) -> "SparseMatrix":
        """The squares of its entries."""
        return replace(self, value=self.value.square())

    def with_rows_times(self, scale: Float[Tensor, "m 1"]) -> "SparseMatrix":
        """Each row multiplied by its number."""
        counts = self.rowptr.diff()
        return replace(self, value=self.value * scale.squeeze(1).repeat_interleave(counts))


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
