from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robust_diffusion.operators import Graph, edge_cosine, spmm
from robust_diffusion.training.sparse_input import sparse_input

NODES, FEATURES = 40, 60


def bag_of_words(share: float = 0.03, common: float = -0.25) -> Tensor:
    """One value nearly everywhere; the first node has no other."""
    generator = torch.Generator().manual_seed(1)
    x = torch.full((NODES, FEATURES), common, dtype=torch.float64)
    other = torch.rand(NODES, FEATURES, generator=generator) < share
    other[0] = False
    x[other] = torch.rand(int(other.sum()), dtype=torch.float64, generator=generator)
    return x


def layers(*, affine: bool = True, bias: bool = True) -> tuple[nn.LayerNorm, nn.Linear]:
    torch.manual_seed(2)
    norm = nn.LayerNorm(FEATURES, elementwise_affine=affine).double()
    linear = nn.Linear(FEATURES, 4, bias=bias).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm, linear


def outcome(x: Tensor, forward: Callable[[Tensor], Tensor], *modules: nn.Module) -> list[Tensor]:
    """The values, and the gradient of every parameter."""
    parameters = [p for module in modules for p in module.parameters()]
    out = forward(x)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    gradients = torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True)
    assert type(out) is Tensor
    return [out, *(g for g in gradients if g is not None)]


def assert_same(forward: Callable[[Tensor], Tensor], *modules: nn.Module) -> None:
    x = bag_of_words()
    prepared = sparse_input(x)
    assert type(prepared) is not Tensor
    sparse, dense = (outcome(given, forward, *modules) for given in (prepared, x))
    assert len(sparse) == len(dense) > 1
    for found, expected in zip(sparse, dense, strict=True):
        torch.testing.assert_close(found, expected)


FIRST_LAYERS: dict[str, Callable[[Tensor, nn.Module, nn.Module], Tensor]] = {
    "linear": lambda x, _, linear: linear(x),
    "norm": lambda x, norm, linear: linear(norm(x)),
    "unit rows": lambda x, _, linear: linear(F.normalize(x, dim=1)),
    "norm and unit rows": lambda x, norm, linear: linear(F.normalize(norm(x), dim=1, eps=1e-6)),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("forward", FIRST_LAYERS.values(), ids=FIRST_LAYERS)
def test_first_layers_are_the_dense_ones(
    forward: Callable[..., Tensor], *, affine: bool, bias: bool
) -> None:
    norm, linear = layers(affine=affine, bias=bias)
    assert_same(lambda x: forward(x, norm, linear), norm, linear)
    fresh = nn.LayerNorm(FEATURES).double()  # leaves a node without words at 0
    assert_same(lambda x: forward(x, fresh, linear), fresh, linear)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.relu().square(),
        lambda x: torch.cat([x, 2 * x]),
        lambda x: (1 + x) @ x.t(),
        lambda x: F.normalize(x, p=1, dim=1),
        lambda x: F.normalize(x, dim=0),
        lambda x: x[3:5, :2],
        lambda x: F.layer_norm(x, (FEATURES,)),
    ],
)
def test_any_other_operation_sees_the_plain_features(operation: Callable[[Tensor], Tensor]) -> None:
    norm, _ = layers()
    assert_same(lambda x: operation(norm(x)), norm)
    x = bag_of_words()
    torch.testing.assert_close(operation(sparse_input(x))[:], operation(x))


def test_a_custom_derivative_is_the_dense_one() -> None:
    norm, linear = layers()
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 2]]), num_nodes=NODES)
    weight = graph.weight.double()
    assert_same(lambda x: linear(spmm(weight, norm(x), graph) + norm(x)), norm, linear)
    assert_same(lambda x: spmm(weight, F.normalize(norm(x), dim=1), graph), norm)


def test_a_half_frozen_norm_trains_the_rest() -> None:
    norm, _ = layers()
    norm.weight.requires_grad_(requires_grad=False)
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=NODES)
    weight = graph.weight.double()
    (sparse,), (dense,) = (
        torch.autograd.grad(spmm(weight, norm(x), graph).square().sum(), [norm.bias])
        for x in (sparse_input(bag_of_words()), bag_of_words())
    )
    torch.testing.assert_close(sparse, dense)


def test_single_precision_is_as_close_as_dense() -> None:
    norm, linear = layers()
    exact = linear(norm(bag_of_words()))
    norm, linear = norm.float(), linear.float()
    x = bag_of_words().float()
    errors = [(linear(norm(given)) - exact).abs().max() for given in (sparse_input(x), x)]
    assert errors[0] < 3 * errors[1]


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(30, 20),
        bag_of_words(share=0.2),
        torch.zeros(0, 5),
        torch.zeros(5, 3, requires_grad=True),
    ],
    ids=["dense", "too many", "empty", "attacked"],
)
def test_other_features_stay_plain(x: Tensor) -> None:
    assert sparse_input(x) is x


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_cosines_along_edges_are_the_dense_ones(*, affine: bool, unit: bool) -> None:
    norm, linear = layers(affine=affine)
    edge_index = torch.randint(NODES, (2, 90), generator=torch.Generator().manual_seed(4))
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)

    def forward(x: Tensor) -> Tensor:
        x = F.normalize(norm(x), dim=1) if unit else norm(x)
        return edge_cosine(x, graph)[:, None] * linear(x).sum()

    assert_same(forward, norm, linear)


def test_a_node_without_words_is_like_no_other() -> None:
    x = bag_of_words(common=0.0)
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=NODES)
    cosine = edge_cosine(sparse_input(x), graph)
    torch.testing.assert_close(cosine, edge_cosine(x, graph))
    assert (cosine[graph.src == 0] == 0).all()


def test_entries_are_computed_when_first_needed() -> None:
    x = layers()[0](sparse_input(bag_of_words()))
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=NODES)
    edge_cosine(x, graph)
    assert x.shape == (NODES, FEATURES)
    assert (x.size(0), x.dim(), x.dtype, x.device.type) == (NODES, 2, torch.float64, "cpu")
    assert not x.made
    x.square()
    assert x.made
