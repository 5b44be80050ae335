import pytest
import torch
from torch import Tensor

from robust_diffusion.operators import Graph, SparseMatrix, sparse_matrix


def dense_matrix(rows: int = 7, columns: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    matrix[torch.rand(rows, columns, generator=generator) < 0.6] = 0
    matrix[2], matrix[:, 1] = 0, 0  # a row and a column without entries
    return matrix


def test_the_product_and_its_gradient_are_those_of_the_dense_matrix() -> None:
    dense = dense_matrix()
    matrix = SparseMatrix.from_dense(dense)
    for other in (torch.randn(5, 3).double(), torch.randn(3, 5).double().t()):
        torch.testing.assert_close(matrix @ other, dense @ other)
        assert torch.autograd.gradcheck(lambda z: matrix @ z, other.requires_grad_())


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (3, 2)])
def test_a_matrix_without_entries_gives_zeros(shape: tuple[int, int]) -> None:
    matrix = SparseMatrix.from_dense(torch.zeros(shape))
    other = torch.ones(shape[1], 2, requires_grad=True)
    out = matrix @ other
    out.sum().backward()
    assert torch.equal(out, torch.zeros(shape[0], 2))
    assert torch.equal(other.grad, torch.zeros_like(other))  # type: ignore[arg-type]


def test_rows_are_summed_scaled_and_squared() -> None:
    dense = dense_matrix()
    matrix, scale = SparseMatrix.from_dense(dense), torch.rand(7, 1, dtype=torch.float64)
    eye = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(matrix.row_sums(), dense.sum(1, keepdim=True))
    torch.testing.assert_close(matrix.with_rows_times(scale) @ eye, dense * scale)
    torch.testing.assert_close(matrix.squared() @ eye, dense.square())


def test_products_along_edges_are_those_of_the_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = dense_matrix()
    edge_index = torch.tensor([[0, 1, 2, 6, 3], [1, 0, 4, 4, 3]])
    graph = Graph.from_edge_index(edge_index, num_nodes=7)
    eye = torch.eye(5, dtype=torch.float64)
    expected = dense[graph.dst] * dense[graph.src]
    for held in (sparse_matrix.ENTRIES_AT_A_TIME, 1):
        monkeypatch.setattr(sparse_matrix, "ENTRIES_AT_A_TIME", held)
        along = SparseMatrix.from_dense(dense).products_along(graph)
        torch.testing.assert_close(along @ eye, expected)
        assert (along.value != 0).all()


def test_products_along_edges_are_found_once_per_edge_list() -> None:
    matrix = SparseMatrix.from_dense(dense_matrix())
    edge_index = torch.tensor([[0, 1], [1, 0]])
    graph = Graph.from_edge_index(edge_index, num_nodes=7)
    along = matrix.products_along(graph)
    assert matrix.products_along(Graph.from_edge_index(edge_index, num_nodes=7)) is along
    assert (
        matrix.products_along(Graph.from_edge_index(edge_index.clone(), num_nodes=7)) is not along
    )
