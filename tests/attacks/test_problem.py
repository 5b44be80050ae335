from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GPSConv,
    GraphConv,
    LEConv,
    SAGEConv,
    TAGConv,
    TransformerConv,
)

from robust_diffusion import models
from robust_diffusion.attacks import (
    GRBCD,
    PRBCD,
    AutoModification,
    Budget,
)
from robust_diffusion.attacks.base import Problem, gradient
from robust_diffusion.attacks.gradient_ascent import RULES, Ascent, HalvingSign
from robust_diffusion.attacks.losses import LOSSES
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models.adaptive import MeanOverDraws
from robust_diffusion.models.checked import check_model
from tests.attacks.contract import clean, graph, run

X = torch.tensor([[0.0, 2.0], [1.0, 0.0], [3.0, 5.0]])
DATA = Data(x=X, edge_index=torch.tensor([[0, 1], [1, 0]]))
TARGETS = torch.tensor([2, 0])


def double(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return 2 * x if edge_weight is None else 2 * x * edge_weight.mean()


def test_labels_are_those_of_the_graph_or_else_predictions_without_gradient() -> None:
    seen, data = [], DATA.clone()

    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        seen.append(torch.is_grad_enabled())
        return double(x, edge_index)

    assert Problem("any", model, DATA, TARGETS).all_labels.tolist() == [1, 0, 1]
    assert seen == [False]
    data.y = torch.tensor([0, 1, 0])
    assert Problem("any", double, data, TARGETS).all_labels.tolist() == [0, 1, 0]
    data.y = torch.tensor([0, -1, -1])  # unknown
    assert Problem("any", double, data, TARGETS).all_labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("error", "told"), [(RuntimeError("a\nb"), AttackError), (ConfigError("a=0: no"), ConfigError)]
)
def test_an_error_of_the_model_is_wrapped(error: Exception, told: type[Exception]) -> None:
    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        raise error

    with pytest.raises(told) as info:
        _ = Problem("any", model, DATA, TARGETS).clean_logits
    assert error in (info.value, info.value.__cause__)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"),
    MemoryError(),
]


class Exhausted(nn.Module):
    """Runs out of memory in every pass, or only where a gradient is recorded."""

    def __init__(self, error: Exception, *, by_gradient: bool) -> None:
        super().__init__()
        self.error, self.by_gradient = error, by_gradient
        self.conv = SAGEConv(2, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not self.by_gradient:
            raise self.error
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


class ExhaustedByWeights(Exhausted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return super().forward(x, edge_index)


def read_logits(model: nn.Module) -> object:
    return Problem("any", model, DATA, TARGETS).clean_logits


def read_edge_gradient(model: nn.Module) -> object:
    return Problem("any", model, DATA, TARGETS).check_edge_weights()


def attack_by_parts(model: nn.Module) -> object:
    budget = Budget(0, 0, (-1.0, 1.0), edge_ratio=1.0)
    return AutoModification(num_steps=1)(model, DATA, TARGETS, budget, torch.Generator())


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("cls", [Exhausted, ExhaustedByWeights])
@pytest.mark.parametrize(
    ("read", "by_gradient"),
    [
        (read_logits, False),
        (partial(check_model, x=DATA.x, edge_index=DATA.edge_index, num_classes=2), False),
        (read_edge_gradient, True),
        (attack_by_parts, True),
    ],
)
def test_out_of_memory_is_raised_as_it_is(
    error: Exception, cls: type[Exhausted], read: Callable[[nn.Module], object], by_gradient: bool
) -> None:
    with pytest.raises(type(error)) as info:
        read(cls(error, by_gradient=by_gradient))
    assert info.value is error


def test_loss_is_the_cross_entropy_at_the_targets() -> None:
    problem = Problem("any", double, DATA, TARGETS)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    edges = DATA.edge_index
    expected = F.cross_entropy(2 * x[TARGETS], torch.tensor([1, 1]))
    assert torch.equal(problem.loss(x, edges), expected)
    weighted = problem.loss(x, edges, torch.tensor([0.25, 0.5]))
    torch.testing.assert_close(weighted, F.cross_entropy(0.75 * x[TARGETS], torch.tensor([1, 1])))
    for model in (double, MeanOverDraws(double)):
        Problem("any", model, DATA, TARGETS).check_edge_weights()


def test_a_capped_loss_counts_lost_targets_no_further() -> None:
    problem = Problem("any", double, DATA, TARGETS)
    x = torch.tensor([[9.0, 0.0], [0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    loss = problem.loss(x, DATA.edge_index, cap=4.0)
    assert loss.item() == pytest.approx((4 + torch.tensor(2.0).log().item()) / 2)
    slope = gradient(loss, x, attack="any", wrt="features")
    assert not slope[0].any()
    assert slope[2].all()


class Calling(nn.Module):
    """Calls a layer or a function."""

    def __init__(self, of: Callable[..., Tensor]) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.of(x, edge_index)


class Weighted(nn.Module):
    """Calls two layers with the weights of the edges."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index, edge_weight).tanh()
        return x


class Unweighted(Weighted):
    """The same, which takes none."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index)


@pytest.mark.parametrize("layer", [GCNConv, LEConv, partial(TAGConv, K=2)])
@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_a_model_without_the_argument_is_attacked_as_with_it(layer: Any, attack: Any) -> None:
    torch.manual_seed(0)
    layers, budget = nn.ModuleList([layer(16, 8), layer(8, 7)]), Budget(edge_ratio=0.2)
    found = [
        run(attack(num_steps=3, block_size=500), model=model(layers).eval(), budget=budget)
        for model in (Weighted, Unweighted)
    ]
    assert torch.equal(found[0].edge_index, found[1].edge_index)


@pytest.mark.parametrize(
    ("layer", "is_exact"),
    [
        (GCNConv(16, 7), True),
        (SAGEConv(16, 7), True),
        (GraphConv(16, 7, aggr="mean"), True),
        (SAGEConv(16, 7, aggr="max"), False),
        (GATConv(16, 7), False),
        (TransformerConv(16, 7), False),
    ],
    ids=str,
)
def test_an_absent_edge_counts_in_no_degree_or_is_known(layer: nn.Module, is_exact: bool) -> None:
    problem = Problem("any", Calling(layer).eval(), clean(graph()), graph().index_test)
    problem.check_edge_weights()
    assert problem.drops_edges_of_weight_0 == is_exact


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
    model = Calling(layer).eval()
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


MODELS = ["APPNP", "GAT", "GCN", "GCNSVD", "GIN", "GNNGuard", "GraphSAGE", "MLP", "RobustGCN"]
MODELS += ["GCNJaccard", "SoftMedianGDC"]
OLD, NEW, FEATURES, CLASSES = 60, 5, 12, 3


@pytest.fixture
def x() -> Tensor:
    return torch.rand(OLD, FEATURES, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def edge_index() -> Tensor:
    return torch.randint(OLD + NEW, (2, 200), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_of_plain_rows(name: str, x: Tensor, edge_index: Tensor) -> None:
    torch.manual_seed(0)
    model = (
        getattr(models, name)(FEATURES, 8, out_channels=CLASSES)
        .eval()
        .requires_grad_(requires_grad=False)
    )
    append = Problem("any", model, Data(x, edge_index), torch.arange(3)).with_rows
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        new = torch.rand(NEW, FEATURES, generator=generator).requires_grad_()
        outputs = [model(rows, edge_index) for rows in (torch.cat([x, new]), append(new))]
        gradients = [torch.autograd.grad(out.square().sum(), new)[0] for out in outputs]
        torch.testing.assert_close(*outputs)
        scale = gradients[0].abs().max().item()
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-6 * scale)
    assert len(append(new).outputs) == (name != "GraphSAGE")  # whose first step is over each row


class Doubled(models.GCN):
    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        return super().forward(2 * x, *rest)


def compiled() -> nn.Module:
    model = models.GCN(FEATURES, 8, out_channels=CLASSES)
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    "build",
    [partial(Doubled, FEATURES, 8, out_channels=CLASSES), compiled, lambda: Calling(double)],
)
def test_models_from_elsewhere_receive_tensors(
    build: Callable[[], nn.Module], x: Tensor, edge_index: Tensor
) -> None:
    problem = Problem("any", build(), Data(x, edge_index), torch.arange(3))
    assert torch.equal(problem.with_rows(x[:2]), torch.cat([x, x[:2]]))


@pytest.mark.parametrize(
    "change",
    [
        lambda linear: linear.register_forward_hook(lambda _, x, y: y + x[0].mean()),
        lambda linear: nn.utils.parametrizations.weight_norm(linear),
        lambda linear: linear.requires_grad_(),
    ],
)
def test_a_changed_first_layer_computes_with_every_row(
    change: Callable[[nn.Module], object], x: Tensor, edge_index: Tensor
) -> None:
    model = (
        models.GraphPDE(FEATURES, 8, out_channels=CLASSES)
        .eval()
        .requires_grad_(requires_grad=False)
    )
    change(model.layers[0].linear)
    rows = Problem("any", model, Data(x, edge_index), torch.arange(3)).with_rows(x[:NEW])
    outputs = [model(each, edge_index) for each in (rows, rows[:])]
    assert torch.equal(*outputs)
    assert outputs[0].requires_grad == model.layers[0].linear.bias.requires_grad
    assert not rows.outputs


def near_3(free: Tensor) -> Tensor:
    return -(free - 3).square().sum()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_the_maximum_and_can_be_taken_up_again(rule: str) -> None:
    whole, parts = (
        Ascent(torch.zeros(2, 3), near_3, partial(RULES[rule], size=0.1), attack="any")
        for _ in range(2)
    )
    found = whole.advance(200)
    torch.testing.assert_close(found, torch.full((2, 3), 3.0), atol=0.11, rtol=0)
    for steps in (1, 5, 194):
        again = parts.advance(steps)
    assert torch.equal(again, found)


def test_halving_goes_on_from_the_best_point() -> None:
    variable = torch.tensor([1.0])
    rule = HalvingSign(variable, 0.5, patience=2)
    rule(torch.tensor([1.0]), torch.tensor(9.0))  # best, at 1
    rule(torch.tensor([1.0]), torch.tensor(5.0))
    assert variable.item() == 2
    rule(torch.tensor([1.0]), torch.tensor(5.0))
    assert variable.item() == 1.25


# Right and sure, right and unsure, lost, tied.
LOGITS = torch.tensor([[4.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 3.0, 1.0], [2.0, 2.0, 0.0]])
LABELS = torch.zeros(4, dtype=torch.long)
MARGINS = [-3.0, -0.5, 3.0, 0.0]


def test_losses_by_hand() -> None:
    margin, probability = torch.tensor(MARGINS), LOGITS.softmax(1)
    entropy = -probability[:, 0].log()
    expected = {
        "cross_entropy": entropy,
        "masked": entropy,
        "logit": margin,
        "margin": margin.clamp(max=0),
        "tanh_margin": margin.tanh(),
        "prob_margin": probability[:, 1:].max(1).values - probability[:, 0],
        "own_logit": -LOGITS[:, 0],
    }
    assert expected.keys() == LOSSES.keys()
    for name, values in expected.items():
        torch.testing.assert_close(LOSSES[name](LOGITS, LABELS), values)


class Product(nn.Module):
    """A model of GRB's calling convention."""

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return torch.sparse.mm(adj, x)[:, :CLASSES]


def test_a_model_of_grb_takes_weights() -> None:
    model = models.GRBModel(Product())
    data = Data(x=graph().x, edge_index=graph().edge_index)
    assert Problem("any", model, data, torch.arange(3)).takes_weights
