"""Edges keep the order of the clean graph."""

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models.checked import sort_inputs, sorted_by, sorted_row

BY_SOURCE = torch.tensor([[0, 0, 1, 2], [1, 2, 0, 0]])
MIXED = BY_SOURCE[:, [3, 0, 2, 1]]


@pytest.mark.parametrize(
    ("edges", "row"), [(BY_SOURCE, 0), (BY_SOURCE.flip(0), 1), (MIXED, None), (MIXED[:, :0], 0)]
)
def test_the_row_that_sorts_edges_is_found(edges: Tensor, row: int | None) -> None:
    assert sorted_row(edges) == row


class Echo(nn.Module):
    def forward(self, _: Tensor, *edges: Tensor) -> tuple[Tensor, ...]:
        return edges


@pytest.mark.parametrize(
    ("row", "expected"), [(0, BY_SOURCE), (1, BY_SOURCE.flip(0)), (None, MIXED)]
)
def test_a_model_gets_sorted_edges_and_their_weights(row: int | None, expected: Tensor) -> None:
    model, weight = Echo(), MIXED[0] * 10 + MIXED[1]
    handle = sort_inputs(model, row)
    edges, arranged = model(weight, MIXED, weight)
    assert torch.equal(edges, expected)
    assert torch.equal(arranged, expected[0] * 10 + expected[1])
    assert torch.equal(sorted_by(row, MIXED)[0], expected)
    handle.remove()
    assert torch.equal(model(weight, MIXED)[0], MIXED)
