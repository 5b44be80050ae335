"""A victim: what it sees of an odd model, and how it calls one."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GPSConv,
    GraphConv,
    LayerNorm,
    LEConv,
    SAGEConv,
    SimpleConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.nn import models as pyg

from robust_diffusion import models
from robust_diffusion.attacks import GRBCD, PRBCD, AutoModification, Budget, Task
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models.victim import Traits, Victim, sorted_by, sorted_row
from tests.attacks.contract import graph, run, victim_and_task
from tests.drawn import FEATURES as DRAWN_FEATURES
from tests.drawn import NODES as DRAWN
from tests.drawn import drawn_data

X = torch.tensor([[0.0, 2.0], [1.0, 0.0], [3.0, 5.0]])
EDGES = torch.tensor([[0, 1], [1, 0]])


def double(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return 2 * x if edge_weight is None else 2 * x * edge_weight.mean()


@pytest.mark.parametrize(
    ("error", "told"), [(RuntimeError("a\nb"), AttackError), (ConfigError("a=0: no"), ConfigError)]
)
def test_victim_error_of_the_model(error: Exception, told: type[Exception]) -> None:
    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        raise error

    with pytest.raises(told) as info:
        _ = Victim(model, X, EDGES).clean_logits
    assert error in (info.value, info.value.__cause__)


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


def attack_by_parts(victim: Victim) -> object:
    budget = Budget(0, 0, (-1.0, 1.0), edge_ratio=1.0)
    task = Task(Data(x=X, edge_index=EDGES), torch.tensor([2, 0]), torch.tensor([1, 0, 1]))
    return AutoModification(num_steps=1)(victim, task, budget, torch.Generator())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("cls", [Exhausted, ExhaustedByWeights])
@pytest.mark.parametrize(
    ("read", "by_gradient"),
    [
        (lambda victim: victim.clean_logits, False),
        (lambda victim: Victim.probe(victim.model, X, EDGES), False),
        (lambda victim: victim.edge_gradient, True),
        (attack_by_parts, True),
    ],
)
def test_victim_out_of_memory(
    error: Exception, cls: type[Exhausted], read: Callable[[Victim], object], by_gradient: bool
) -> None:
    with pytest.raises(type(error)) as info:
        read(Victim(cls(error, by_gradient=by_gradient), X, EDGES))
    assert info.value is error


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
def test_victim_weighted_and_unweighted(layer: Any, attack: Any) -> None:
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
def test_victim_edge_gradient(layer: nn.Module, is_exact: bool) -> None:
    victim = Victim(Calling(layer).eval(), graph().x, graph().edge_index)
    assert victim.edge_gradient == ("exact" if is_exact else "rough")


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
def test_victim_masked_messages(layer: nn.Module) -> None:
    model = Calling(layer).eval()
    victim, task = victim_and_task(model)
    victim.check_edge_gradient()
    x, edge_index = task.x, task.edge_index
    before = victim(x, edge_index)[task.targets]
    mask = torch.ones(edge_index.size(1), requires_grad=True)
    masked = victim(x, edge_index, mask)[task.targets]
    assert torch.allclose(masked, before, atol=1e-5)
    (slope,) = torch.autograd.grad(masked.square().sum(), mask)
    touching = torch.isin(edge_index[1], task.targets)
    assert slope[touching].any()
    assert not slope[~touching].any() or isinstance(layer, GPSConv)
    assert torch.equal(victim(x, edge_index)[task.targets], before)  # nothing stays behind


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
def test_victim_with_rows(name: str, x: Tensor, edge_index: Tensor) -> None:
    torch.manual_seed(0)
    model = (
        getattr(models, name)(FEATURES, 8, out_channels=CLASSES)
        .eval()
        .requires_grad_(requires_grad=False)
    )
    append = Victim(model, x, edge_index).with_rows
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        new = torch.rand(NEW, FEATURES, generator=generator).requires_grad_()
        outputs = [model(rows, edge_index) for rows in (torch.cat([x, new]), append(new))]
        gradients = [torch.autograd.grad(out.square().sum(), new)[0] for out in outputs]
        torch.testing.assert_close(*outputs)
        scale = gradients[0].abs().max().item()
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-6 * scale)
    assert len(append(new).outputs) == (name != "GraphSAGE")  # whose first step is over each row


PYG = {
    "GCN": {},
    "GAT": {"norm": "layer", "jk": "cat"},
    "GraphSAGE": {"dropout": 0.5},
    "GIN": {},
    "EdgeCNN": {},
    "PNA": {"aggregators": ["mean"], "scalers": ["identity"], "deg": torch.ones(9).long()},
}
"""Models of PyG, with options."""


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", PYG)
def test_victim_with_rows_pyg(name: str, records: bool, x: Tensor, edge_index: Tensor) -> None:
    torch.manual_seed(0)
    model = getattr(pyg, name)(FEATURES, 8, 2, CLASSES, **PYG[name])
    with Victim(model, x, edge_index) as victim:
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            new = (torch.rand(NEW, FEATURES, generator=generator) - 0.5).requires_grad_(records)
            outputs = [victim(r, edge_index) for r in (torch.cat([x, new]), victim.with_rows(new))]
            torch.testing.assert_close(*outputs)
            if records:
                gradients = [torch.autograd.grad(out.square().sum(), new)[0] for out in outputs]
                torch.testing.assert_close(*gradients)
        rows: Any = victim.with_rows(new)
        victim(rows, edge_index)
    # The others aggregate features first.
    assert len(rows.rows.outputs) == (name in ("GCN", "GAT", "GraphSAGE"))


def hooked() -> nn.Module:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES)
    model.convs[1].register_forward_hook(lambda *_: None)
    return model  # type: ignore[no-any-return]


class Doubled(models.GCN):
    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        return super().forward(2 * x, *rest)


def compiled(build: Callable[..., nn.Module]) -> nn.Module:
    model = build(FEATURES, 8, num_layers=2, out_channels=CLASSES)
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    "build",
    [
        partial(Doubled, FEATURES, 8, out_channels=CLASSES),
        partial(compiled, models.GCN),
        partial(compiled, pyg.GCN),
        hooked,
        lambda: Unweighted(nn.ModuleList([GCNConv(FEATURES, CLASSES)])),
        lambda: Calling(double),
    ],
)
def test_victim_with_rows_custom_models(
    build: Callable[[], nn.Module], x: Tensor, edge_index: Tensor
) -> None:
    rows = Victim(build(), x, edge_index).with_rows(x[:2])
    assert type(rows) is Tensor
    assert torch.equal(rows, torch.cat([x, x[:2]]))


@pytest.mark.parametrize(
    "change",
    [
        lambda linear: linear.register_forward_hook(lambda _, x, y: y + x[0].mean()),
        lambda linear: nn.utils.parametrizations.weight_norm(linear),
        lambda linear: linear.requires_grad_(),
    ],
)
def test_victim_with_rows_changed_layer(
    change: Callable[[nn.Module], object], x: Tensor, edge_index: Tensor
) -> None:
    model = (
        models.GraphPDE(FEATURES, 8, out_channels=CLASSES)
        .eval()
        .requires_grad_(requires_grad=False)
    )
    change(model.layers[0].linear)
    rows = Victim(model, x, edge_index).with_rows(x[:NEW])
    outputs = [model(each, edge_index) for each in (rows, rows[:])]
    assert torch.equal(*outputs)
    assert outputs[0].requires_grad == model.layers[0].linear.bias.requires_grad
    assert not rows.outputs


class Product(nn.Module):
    """A model of GRB's calling convention."""

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return torch.sparse.mm(adj, x)[:, :CLASSES]


def test_victim_grb_model() -> None:
    model = models.GRBModel(Product())
    assert Victim(model, graph().x, graph().edge_index).takes_weights


DATA = drawn_data()


class Wrong(nn.Module):
    def __init__(self, result: Callable[..., Any]) -> None:
        super().__init__()
        self.result = result
        self.kept: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.result(x)


class KeepsFirst(Wrong):
    """Its first graph is the only one that it sees."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.kept = edge_index if self.kept is None else self.kept
        return self.result(x, self.kept)


class KeepsSums(Wrong):
    """Neighbours' features are summed up once, as in SGC."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.kept = self.result(x, edge_index) if self.kept is None else self.kept
        return self.kept[: x.size(0)]


def neighbours(x: Tensor, edge_index: Tensor) -> Tensor:
    return x.index_add(0, edge_index[1], x[edge_index[0]])


@pytest.mark.parametrize(
    "model",
    [
        pyg.GCN,
        pyg.GCN(DRAWN_FEATURES, 8, 2, 7, cached=True),
        pyg.GCN(DRAWN_FEATURES + 1, 8, 2, 7),
        nn.Linear(DRAWN_FEATURES, 7),
        *[
            Wrong(result)
            for result in (
                lambda x: (x, x),
                lambda x: x[1:],
                lambda x: x.long(),
                lambda x: x[:, :3],
                lambda x: x / 0,
            )
        ],
        KeepsFirst(neighbours),
        KeepsSums(neighbours),
        pyg.LINKX(DRAWN, DRAWN_FEATURES, 8, 7, 2),
        Wrong(lambda x: x * torch.ones(DRAWN, 1)),
    ],
)
def test_probe_errors(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"^surrogates\[a\]: [^\n]*$"):
        Victim.probe(model, DATA.x, DATA.edge_index, 7, name="surrogates[a]")
    with pytest.raises(ConfigError, match=r"^model: expected two logits"):
        Victim.probe(Wrong(lambda x: x[:, :1]), DATA.x, DATA.edge_index, 1)


def traits_of(result: Callable[[Tensor], Tensor], edges: Tensor) -> Traits:
    return Victim.probe(Wrong(result), DATA.x, edges, 7).traits


def test_probe_traits() -> None:
    ring = torch.stack([torch.arange(DRAWN), torch.arange(DRAWN).roll(1)])
    ring = torch.cat([ring, ring.flip(0)], 1)  # on which other edges are the same
    for edges in (DATA.edge_index, ring):
        traits = Victim.probe(pyg.GCN(DRAWN_FEATURES, 8, 2, 7), DATA.x, edges, 7).traits
        assert traits.reads_edges
        assert not any((traits.writes_in_place, traits.probabilities, traits.is_random))
    # A norm over all nodes is no graph that is kept.
    norms = LayerNorm(DRAWN_FEATURES), nn.BatchNorm1d(DRAWN_FEATURES, track_running_stats=False)
    for layer in (lambda x: x, *norms):
        assert traits_of(layer, DATA.edge_index).reads_edges is False
    assert traits_of(lambda x: x.softmax(1), ring).probabilities
    assert traits_of(lambda x: x + torch.rand_like(x), ring).is_random
    before = DATA.x.clone()
    assert traits_of(lambda x: x.relu_(), ring).writes_in_place
    assert torch.equal(DATA.x, before)


BY_SOURCE = torch.tensor([[0, 0, 1, 2], [1, 2, 0, 0]])
MIXED = BY_SOURCE[:, [3, 0, 2, 1]]


@pytest.mark.parametrize(
    ("edges", "row"), [(BY_SOURCE, 0), (BY_SOURCE.flip(0), 1), (MIXED, None), (MIXED[:, :0], 0)]
)
def test_sorted_row(edges: Tensor, row: int | None) -> None:
    assert sorted_row(edges) == row
    assert torch.equal(sorted_by(None, edges)[0], edges)
    if row is not None:  # for a model that sorts by it, see `test_evaluate_sorted_edges`
        order = torch.arange(edges.size(1)).flip(0)
        found, order = sorted_by(row, edges[:, order], order)
        assert torch.equal(found, edges)
        assert order.tolist() == list(range(edges.size(1)))


class InPlace(nn.Module):
    """Writes into its features or edges, and returns probabilities."""

    def __init__(self, *, edges: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.edges, self.conv = edges, GCNConv(DRAWN_FEATURES, 7)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits: Tensor = self.conv(x, edge_index)
        (edge_index if self.edges else x).fill_(0)
        return logits.softmax(1)


def test_victim_has_weights_of() -> None:
    given = DATA.x, DATA.edge_index
    near, far = (Victim(SimpleConv(aggr=aggr), *given) for aggr in ("mean", "sum"))
    assert not near.has_weights_of(far)
    assert near.has_weights_of(Victim(near.module, *given))
    gcn = GCNConv(DATA.x.size(1), 7)
    assert Victim(gcn, *given).has_weights_of(Victim(copy.deepcopy(gcn), *given))


@pytest.mark.parametrize("edges", [True, False])
def test_probe_model_that_writes_in_place(edges: bool) -> None:
    x, edge_index = DATA.x.clone(), DATA.edge_index.clone()
    victim = Victim.probe(InPlace(edges=edges).eval(), x, edge_index, 7)
    assert victim.traits.writes_in_place
    expected = Victim(victim.module.conv, x, edge_index)(x, edge_index).softmax(1).log()
    assert victim.edge_gradient == "exact"
    for called in (victim, victim.as_module()):
        torch.testing.assert_close(called(x, edge_index), expected)
    weight = torch.ones(edge_index.size(1))
    torch.testing.assert_close(victim.as_module()(x, edge_index, weight), expected)
    assert torch.equal(x, DATA.x)
    assert torch.equal(edge_index, DATA.edge_index)
