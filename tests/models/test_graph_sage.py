import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import GraphSAGE, convs
from robust_diffusion.models.convs import SAGEConv
from tests import oracles
from tests.graphs import CHANNELS, random_graph, random_signal
from tests.models.small import build_model, dense_of, dense_stack, edges


@pytest.mark.parametrize("variant", ["original", "grb"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_dense_one(weighted: bool, variant: str) -> None:
    model, given = build_model(GraphSAGE, variant=variant), edges(weighted=weighted)
    dense = dense_of(*given)

    def pool(conv: nn.Module, x: Tensor) -> Tensor:
        x = x / x.norm(dim=1, keepdim=True)
        projected = (x @ conv.lin.weight.T + conv.lin.bias).relu()
        pooled = oracles.root_mean_square_pool(projected, dense)
        root = projected if variant == "grb" else x
        return pooled @ conv.lin_l.weight.T + conv.lin_l.bias + root @ conv.lin_r.weight.T

    expected = dense_stack(model, random_signal(), pool)
    torch.testing.assert_close(model(random_signal(), *given), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("project_root", [False, True])
def test_pooling_in_parts_changes_nothing(
    project_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    conv = SAGEConv(CHANNELS, 2, project_root=project_root).double()
    graph, x = random_graph(), random_signal()
    whole = conv(x, graph)
    monkeypatch.setattr(convs, "POOLED_AT_A_TIME", 3)  # does not divide the number of channels
    assert CHANNELS > 3
    torch.testing.assert_close(conv(x, graph), whole, rtol=1e-12, atol=1e-12)


def test_gradient_is_finite_where_nothing_is_pooled() -> None:
    torch.manual_seed(0)
    conv, graph = SAGEConv(CHANNELS, 2).double(), random_graph()
    with torch.no_grad():
        conv.lin.bias.fill_(-100)  # every projection is cut to 0
    x = random_signal().requires_grad_()
    conv(x, graph).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
