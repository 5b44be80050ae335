import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

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


def test_unweighted_equals_pyg() -> None:
    model, (edge_index, _) = build_model(GAT, heads=2), edges()

    def pyg(conv: nn.Module, x: Tensor) -> Tensor:
        reference = GATConv(conv.in_channels, conv.out_channels, heads=conv.heads).double()
        reference.load_state_dict(conv.state_dict())
        return reference(x, edge_index)  # type: ignore[no-any-return]

    expected = dense_stack(model, random_signal(), pyg, F.leaky_relu)
    torch.testing.assert_close(model(random_signal(), edge_index), expected)
