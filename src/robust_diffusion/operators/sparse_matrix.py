"""A constant matrix of few entries, and its product with a dense one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix, vstack
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.graph import (
    EdgeIndexes,
    EdgeValues,
    Graph,
    NodeSignal,
    product_over,
)

ENTRIES_AT_A_TIME = 2**24
"""Entries of edges' ends that are held at once: some 200 MB."""


@dataclass(frozen=True)
class SparseMatrix:
    """An m x n matrix by its e entries other than 0, sorted by row; without gradient."""

    rowptr: Int[Tensor, " m_1"]  # where each row's entries begin
    column: Int[Tensor, " e"]  # column of each entry
    value: EdgeValues  # the entries
    colptr: Int[Tensor, " n_1"]  # where each column's entries begin among those sorted by column
    row_by_column: Int[Tensor, " e"]  # row of each entry, sorted by column
    order_by_column: Int[Tensor, " e"]  # the entries' positions, sorted by column

    @classmethod
    def from_dense(cls, dense: Float[Tensor, "m n"]) -> "SparseMatrix":
        """The entries of a dense matrix that are not 0."""
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

    def products_along(self, graph: Graph) -> "SparseMatrix":
        """A row for each edge: the products of the two ends' entries, column by column.

        Found once per edge list, and kept as long as that is in use.
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
