import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GPSConv, SAGEConv, TransformerConv

from robust_diffusion.attacks.base import attack_labels
from robust_diffusion.attacks.problem import Problem, check_finite, gradient
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models.adaptive import MeanOverDraws
from tests.attacks.contract import clean, graph

X = torch.tensor([[0.0, 2.0], [1.0, 0.0], [3.0, 5.0]])
DATA = Data(x=X, edge_index=torch.tensor([[0, 1], [1, 0]]))
TARGETS = torch.tensor([2, 0])


def double(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return 2 * x if edge_weight is None else 2 * x * edge_weight.sum()


def test_labels_are_the_predictions_without_gradient() -> None:
    seen = []

    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        seen.append(torch.is_grad_enabled())
        return double(x, edge_index)

    assert attack_labels(model, DATA, attack="any").tolist() == [1, 0, 1]
    assert seen == [False]


def test_labels_of_the_graph_come_first() -> None:
    data = DATA.clone()
    data.y = torch.tensor([0, 1, 0])
    assert attack_labels(double, data, attack="any").tolist() == [0, 1, 0]


def test_errors_of_the_package_pass() -> None:
    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        raise ConfigError("solver.rtol=0: must be above 0")

    with pytest.raises(ConfigError, match=r"solver\.rtol=0"):
        attack_labels(model, DATA, attack="any")


@pytest.mark.parametrize("error", [RuntimeError("a\nb"), ValueError(""), IndexError("no 3")])
def test_errors_of_the_model_are_told_in_one_line(error: Exception) -> None:
    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        raise error

    reason = (str(error) or type(error).__name__).split("\n")[0]
    with pytest.raises(AttackError, match=rf"2 features per node \({reason}\); ") as info:
        attack_labels(model, DATA, attack="any")
    assert info.value.__cause__ is error


def test_loss_is_the_cross_entropy_at_the_targets() -> None:
    problem = Problem("any", double, DATA, TARGETS)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    edges = DATA.edge_index
    expected = F.cross_entropy(2 * x[TARGETS], torch.tensor([1, 1]))
    assert torch.equal(problem.loss(x, edges), expected)
    weighted = problem.loss(x, edges, torch.tensor([0.25, 0.5]))
    torch.testing.assert_close(weighted, F.cross_entropy(1.5 * x[TARGETS], torch.tensor([1, 1])))


def test_a_capped_loss_counts_lost_targets_no_further() -> None:
    problem = Problem("any", double, DATA, TARGETS)
    x = torch.tensor([[9.0, 0.0], [0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    loss = problem.loss(x, DATA.edge_index, cap=4.0)
    assert loss.item() == pytest.approx((4 + torch.tensor(2.0).log().item()) / 2)
    slope = gradient(loss, x, attack="any", of="features")
    assert not slope[0].any()
    assert slope[2].all()


@pytest.mark.parametrize("loss", [torch.tensor(1.0), torch.ones(1, requires_grad=True).sum()])
def test_a_loss_that_does_not_depend_on_the_variable_is_an_error(loss: Tensor) -> None:
    variable = torch.zeros(2, requires_grad=True)
    match = "attack=any: the model is not differentiable in the edge weights; attack a"
    with pytest.raises(AttackError, match=match):
        gradient(loss, variable, attack="any", of="edge weights")


@pytest.mark.parametrize("finite", [False, torch.tensor(data=False)])
def test_gradients_that_are_not_finite_are_an_error(finite: bool | Tensor) -> None:
    with pytest.raises(AttackError, match=r"attack=any: .* the features is not finite; check"):
        check_finite(finite, attack="any", of="features")
    check_finite(not finite, attack="any", of="features")


class Weighted(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return double(x, edge_index, edge_weight)


class Plain(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return double(x, edge_index)


def test_models_that_take_edge_weights_are_told_from_others() -> None:
    for model in (Weighted(), double, MeanOverDraws(Weighted())):
        Problem("any", model, DATA, TARGETS).check_edge_weights()
    for model in (Plain(), lambda x, edge_index: x, MeanOverDraws(Plain())):
        with pytest.raises(AttackError, match="not differentiable in the edge weights"):
            Problem("any", model, DATA, TARGETS).check_edge_weights()


class OneLayer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "layer",
    [
        GATConv(16, 7),
        TransformerConv(16, 7),
        GPSConv(16, GATConv(16, 16), heads=2),
        SAGEConv(16, 7),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_messages_are_masked_where_a_model_takes_no_weights(layer: nn.Module) -> None:
    model = OneLayer(layer).eval()
    problem = Problem("any", model, clean(graph()), graph().index_test)
    problem.check_edge_weights()
    x, edge_index = problem.x, problem.edge_index
    before = problem.logits(x, edge_index)
    mask = torch.ones(edge_index.size(1), requires_grad=True)
    masked = problem.logits(x, edge_index, mask)
    assert torch.allclose(masked, before, atol=1e-5)
    (slope,) = torch.autograd.grad(masked.square().sum(), mask)
    touching = torch.isin(edge_index[1], problem.targets)
    assert slope[touching].any()
    assert not slope[~touching].any() or isinstance(layer, GPSConv)
    assert torch.equal(problem.logits(x, edge_index), before)  # nothing stays behind


def test_looking_for_masks_draws_nothing_from_a_model_that_samples() -> None:
    layer = GATConv(16, 7, dropout=0.5).train()  # drops attention in every pass
    problem = Problem("any", OneLayer(layer), clean(graph()), graph().index_test)
    before = torch.get_rng_state()
    problem.check_edge_weights()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_of_matrix_products_has_no_edge_gradient() -> None:
    class Dense(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            adjacency = x.new_zeros(x.size(0), x.size(0)).index_put((*edge_index,), x.new_ones(()))
            return (adjacency @ x)[:, :7]

    with pytest.raises(AttackError):
        Problem("any", Dense(), clean(graph()), graph().index_test).check_edge_weights()
