import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import GAT
from tests import oracles
from tests.graphs import random_signal
from tests.models.small import build_model, dense_of, dense_stack, edges


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_equals_the_dense_one(heads: int, weighted: bool) -> None:
    model, given = build_model(GAT, heads=heads), edges(weighted=weighted)
    dense = dense_of(*given)

    def attend(conv: nn.Module, x: Tensor) -> Tensor:
        matrices = conv.lin.weight.view(conv.heads, conv.out_channels, -1)
        each = [
            oracles.graph_attention(x, dense, matrix, at_dst, at_src)
            for matrix, at_dst, at_src in zip(
                matrices, conv.att_dst[0], conv.att_src[0], strict=True
            )
        ]
        return torch.cat(each, 1) + conv.bias

    expected = dense_stack(
        model, random_signal(), attend, lambda x: torch.where(x > 0, x, 0.01 * x)
    )
    torch.testing.assert_close(model(random_signal(), *given), expected)
