"""What every injection attack under conf/attack keeps to; a new one is found by itself."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, contains_self_loops, is_undirected

from robust_diffusion.attacks import Attack, InjectionBudget, PerturbedGraph
from robust_diffusion.attacks.base import Classifier
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models import GCN
from tests.attacks.graphs import mean_of_neighbours, small_graph, trained_gcn

NAMES = sorted({path.stem for path in Path(CONFIG_DIR, "attack").glob("*.yaml")} - {"none"})
BUDGET = InjectionBudget(6, 10, (-0.94, 0.94))
LIMITS = [(-0.94, 0.94), (-0.04, 1.0), (-1.0, 0.04), (0.2, 0.9), (-0.9, -0.2)]


@pytest.fixture(scope="module", params=NAMES)
def options(request: pytest.FixtureRequest) -> DictConfig:
    """The attack's configuration, found under its file's name."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        cfg = compose("config", [f"attack=[{request.param}]", "fidelity=paper"])
    assert list(cfg.attacks) == [request.param]
    return cfg.attacks[request.param]


@pytest.fixture(scope="module")
def attack(options: DictConfig) -> Attack:
    """The attack with few steps: enough for everything but harm."""
    return instantiate(options, **({"num_steps": 10} if "num_steps" in options else {}))


@pytest.fixture(scope="module")
def graph() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def targets(graph: Data) -> Tensor:
    return graph.index_test


@pytest.fixture(scope="module")
def model(graph: Data) -> GCN:
    return trained_gcn(graph)


def run(
    attack: Attack,
    model: Classifier,
    graph: Data,
    targets: Tensor,
    budget: InjectionBudget = BUDGET,
    seed: int = 0,
) -> PerturbedGraph:
    return attack(model, graph, targets, budget, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def perturbed(attack: Attack, model: GCN, graph: Data, targets: Tensor) -> PerturbedGraph:
    return run(attack, model, graph, targets)


def same(a: PerturbedGraph, b: PerturbedGraph) -> bool:
    return torch.equal(a.x, b.x) and torch.equal(a.edge_index, b.edge_index)


def new_edges(perturbed: PerturbedGraph) -> Tensor:
    """Edges from an injected node."""
    return perturbed.edge_index[:, perturbed.edge_index[0] >= perturbed.num_original_nodes]


def state(model: torch.nn.Module) -> Any:
    return copy.deepcopy(
        (
            [module.training for module in model.modules()],
            [(parameter.requires_grad, parameter.grad) for parameter in model.parameters()],
            {key: value.tolist() for key, value in model.state_dict().items()},
        )
    )


def check_within(perturbed: PerturbedGraph, budget: InjectionBudget, targets: Tensor) -> None:
    injected = perturbed.x[perturbed.num_original_nodes :]
    edges = new_edges(perturbed)
    low, high = torch.tensor(budget.feature_limits)  # as float32 has them
    assert injected.size(0) <= budget.max_injected_nodes
    assert edges[0].bincount().max() <= budget.max_edges_per_injected_node
    assert low <= injected.min() <= injected.max() <= high
    assert torch.isin(edges[1], targets).all()


@pytest.mark.parametrize("limits", LIMITS)
def test_stays_within_the_feature_limits(
    attack: Attack, model: GCN, graph: Data, targets: Tensor, limits: tuple[float, float]
) -> None:
    budget = InjectionBudget(3, 5, limits)
    check_within(run(attack, model, graph, targets, budget), budget, targets)


@pytest.mark.parametrize(("nodes", "edges"), [(1, 1), (7, 60), (11, 7)])
def test_stays_within_the_counts(
    attack: Attack, model: GCN, graph: Data, targets: Tensor, nodes: int, edges: int
) -> None:
    budget = InjectionBudget(nodes, edges, (-0.5, 0.5))
    perturbed = run(attack, model, graph, targets, budget)
    check_within(perturbed, budget, targets)
    assert perturbed.spent.injected_nodes == nodes
    assert perturbed.spent.injected_edges > 0


def test_the_original_graph_comes_first_and_unchanged(
    perturbed: PerturbedGraph, graph: Data
) -> None:
    n = graph.num_nodes
    assert perturbed.num_original_nodes == n
    assert perturbed.x.dtype == graph.x.dtype
    assert torch.equal(perturbed.x[:n], graph.x)
    original = perturbed.edge_index[:, (perturbed.edge_index < n).all(0)]
    assert torch.equal(coalesce(original), coalesce(graph.edge_index))
    assert original.size(1) == graph.num_edges


def test_the_result_is_a_simple_undirected_graph(perturbed: PerturbedGraph) -> None:
    edges, num_nodes = perturbed.edge_index, perturbed.x.size(0)
    assert edges.dtype == torch.int64
    assert edges.min() >= 0
    assert edges.max() < num_nodes
    assert not contains_self_loops(edges)
    assert coalesce(edges).size(1) == edges.size(1)
    assert is_undirected(edges, num_nodes=num_nodes)


def test_the_result_carries_no_gradient(perturbed: PerturbedGraph) -> None:
    assert not perturbed.x.requires_grad
    assert perturbed.x.isfinite().all()


def test_spent_is_what_was_used(perturbed: PerturbedGraph, graph: Data) -> None:
    spent = perturbed.spent
    edges, injected = new_edges(perturbed), perturbed.x[graph.num_nodes :]
    assert spent.injected_nodes == perturbed.x.size(0) - graph.num_nodes > 0
    assert spent.injected_edges == (perturbed.edge_index.size(1) - graph.num_edges) // 2 > 0
    assert spent.max_edges_per_injected_node == max(edges[0].bincount())
    assert spent.feature_range == (injected.min().item(), injected.max().item())


def test_the_seed_decides(
    perturbed: PerturbedGraph, attack: Attack, model: GCN, graph: Data, targets: Tensor
) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    assert same(run(attack, model, graph, targets), perturbed)
    assert not same(run(attack, model, graph, targets, seed=1), perturbed)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_model_is_attacked_in_eval_mode_and_left_as_it_was(
    perturbed: PerturbedGraph, attack: Attack, model: GCN, graph: Data, targets: Tensor
) -> None:
    model = copy.deepcopy(model).train()
    model.norms.eval()
    model.convs[0].requires_grad_(requires_grad=False)
    before = state(model)
    assert same(run(attack, model, graph, targets), perturbed)
    assert state(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_data_are_left_as_they_were(
    attack: Attack, model: GCN, graph: Data, targets: Tensor
) -> None:
    before, targets_before = graph.clone(), targets.clone()
    run(attack, model, graph, targets)
    assert graph.keys() == before.keys()
    for key, value in before.to_dict().items():
        assert torch.equal(graph[key], value) if isinstance(value, Tensor) else graph[key] == value
    assert not graph.x.requires_grad
    assert torch.equal(targets, targets_before)


def test_any_callable_can_be_attacked(
    perturbed: PerturbedGraph, attack: Attack, model: GCN, graph: Data, targets: Tensor
) -> None:
    assert same(run(attack, lambda x, e: model(x, e), graph, targets), perturbed)
    check_within(run(attack, mean_of_neighbours, graph, targets), BUDGET, targets)


@pytest.mark.parametrize("edges", [0, 10])
def test_no_nodes_give_the_clean_graph(
    attack: Attack, model: GCN, graph: Data, targets: Tensor, edges: int
) -> None:
    clean = run(attack, model, graph, targets, InjectionBudget(0, edges, (-1.0, 1.0)))
    assert torch.equal(clean.x, graph.x)
    assert torch.equal(clean.edge_index, graph.edge_index)
    assert clean.spent.injected_nodes == clean.spent.injected_edges == 0


def test_no_edges_leave_the_predictions_alone(
    attack: Attack, model: GCN, graph: Data, targets: Tensor
) -> None:
    clean = run(attack, model, graph, targets, InjectionBudget(3, 0, (-1.0, 1.0)))
    n = graph.num_nodes
    assert torch.equal(clean.x[:n], graph.x)
    assert torch.equal(clean.edge_index, graph.edge_index)
    assert clean.spent.injected_edges == clean.spent.max_edges_per_injected_node == 0
    torch.testing.assert_close(
        model(clean.x, clean.edge_index)[:n], model(graph.x, graph.edge_index)
    )


@pytest.mark.parametrize(
    ("num_targets", "words"), [(9, "max_edges_per_injected_node=10"), (0, "target nodes: none")]
)
def test_targets_that_cannot_take_the_budget_are_refused(
    attack: Attack, model: GCN, graph: Data, targets: Tensor, num_targets: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        run(attack, model, graph, targets[:num_targets])


def nan_logits(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x, edge_index) * torch.nan


def nan_gradient(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x, edge_index) + (0 * x.sum()).sqrt()


@pytest.mark.parametrize("broken", [nan_logits, nan_gradient])
def test_a_gradient_that_is_not_finite_is_an_error(
    attack: Attack, broken: Classifier, graph: Data, targets: Tensor
) -> None:
    with pytest.raises(AttackError, match="not finite"):
        run(attack, broken, graph, targets)


def test_does_more_harm_than_nodes_without_features(
    options: DictConfig, model: GCN, graph: Data, targets: Tensor
) -> None:
    n, budget = graph.num_nodes, InjectionBudget(20, 20, (-0.94, 0.94))
    perturbed = run(instantiate(options), model, graph, targets, budget)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(20, targets.numel(), generator=generator).argsort(1)[:, :20]
    new = torch.arange(n, n + 20).repeat_interleave(20)
    edges = torch.stack([new, targets[drawn].flatten()])
    empty = PerturbedGraph(
        torch.cat([graph.x, torch.zeros(20, graph.num_features)]),
        torch.cat([graph.edge_index, edges, edges.flip(0)], 1),
        n,
    )
    labels = model(graph.x, graph.edge_index).argmax(1)

    def loss_and_accuracy(attacked: PerturbedGraph) -> tuple[float, float]:
        logits = model(attacked.x, attacked.edge_index)[targets]
        hits = (logits.argmax(1) == labels[targets]).float().mean()
        return F.cross_entropy(logits, labels[targets]).item(), hits.item()

    loss, accuracy = loss_and_accuracy(perturbed)
    baseline_loss, baseline_accuracy = loss_and_accuracy(empty)
    assert loss > baseline_loss
    assert accuracy < baseline_accuracy
