"""The adaptive form of every model: the same outputs, and an attack that is no weaker."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import nn

from robust_diffusion.attacks import Budget, GradientInjection
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.models.adaptive import MeanOverDraws, adaptive_form
from tests.attacks.contract import clean
from tests.attacks.graphs import small_graph

GRAPH = small_graph()
MODELS = sorted(path.stem for path in Path(CONFIG_DIR, "model").glob("*.yaml"))
CASES = [
    *([f"model={name}"] for name in MODELS),
    *(["model=graph_pde", f"flow={name}"] for name in ("heat", "hang")),
]
DEFENDED = [["model=beltrami_guard"], ["model=gcn_svd"], ["model=gnn_guard"]]
OTHER = [
    ["model=gnn_guard"],
    ["model=beltrami_guard"],
    ["model=gcn_svd", "model.rank=10"],
    ["model=robust_gcn", "model.sample_at_test=true"],
    ["model=graph_pde", "flow=heat", "solver.adjoint=true"],
]


def build(overrides: list[str]) -> nn.Module:
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        cfg = compose("config", ["model.hidden_channels=16", "model.num_layers=2", *overrides])
    torch.manual_seed(0)
    return instantiate(cfg.model)(in_channels=16, out_channels=7).eval()


def trained(overrides: list[str]) -> nn.Module:
    model = build(overrides).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        optimizer.zero_grad()
        logits = model(GRAPH.x, GRAPH.edge_index)[GRAPH.index_train]
        F.cross_entropy(logits, GRAPH.y[GRAPH.index_train]).backward()
        optimizer.step()
    return model.eval()


def accuracy_under_attack(victim: nn.Module, seen: nn.Module) -> float:
    """Accuracy of a victim on graphs that were made by the gradients of one of its forms."""
    attack = GradientInjection(start="uniform", loss="masked", num_steps=30)
    data, budget = clean(GRAPH), Budget(10, 10, (-0.94, 0.94))
    torch.manual_seed(0)
    made = attack(seen, data, GRAPH.index_test, budget, torch.Generator().manual_seed(0))
    data.y = GRAPH.y
    problem = Problem("any", victim, data, GRAPH.index_test)
    return problem.right(made.x, made.edge_index) / GRAPH.index_test.numel()


@pytest.mark.parametrize("overrides", CASES, ids=" ".join)
def test_a_model_without_a_defence_is_its_own_adaptive_form(overrides: list[str]) -> None:
    model = build(overrides)
    assert (adaptive_form(model) is model) == (overrides not in DEFENDED)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", OTHER, ids=" ".join)
def test_adaptive_is_never_weaker_than_white_box(overrides: list[str]) -> None:
    victim = trained(overrides)
    adaptive = adaptive_form(victim)
    judge = MeanOverDraws(victim, 50) if isinstance(adaptive, MeanOverDraws) else victim
    white_box = accuracy_under_attack(judge, victim)
    assert accuracy_under_attack(judge, adaptive) <= white_box + 0.01


@pytest.mark.parametrize("overrides", OTHER, ids=" ".join)
def test_outputs_and_the_model_stay_the_same(overrides: list[str]) -> None:
    model = build(overrides)
    before = copy.deepcopy(model)
    adaptive = adaptive_form(model)
    draws = range(8 if isinstance(adaptive, MeanOverDraws) else 1)
    for other in (before, adaptive):
        torch.manual_seed(1)
        expected = torch.stack([model(GRAPH.x, GRAPH.edge_index) for _ in draws]).mean(0)
        torch.manual_seed(1)
        found = torch.stack([other(GRAPH.x, GRAPH.edge_index) for _ in draws]).mean(0)
        tolerance = 1.0 if isinstance(other, MeanOverDraws) else 1e-5
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    weights = {key: value.tolist() for key, value in before.state_dict().items()}
    assert {key: value.tolist() for key, value in model.state_dict().items()} == weights


def test_pruned_edges_have_a_gradient_in_the_adaptive_form() -> None:
    """SPEIT's start: a new node of zeros, whose edges are pruned, so that nothing moves it."""
    model = build(["model=gnn_guard"])
    edges = torch.cat([GRAPH.edge_index, torch.tensor([[200, 0], [0, 200]])], 1)

    def slope(form: nn.Module) -> float:
        x = torch.cat([GRAPH.x, -GRAPH.x[:1]]).requires_grad_()
        (gradient,) = torch.autograd.grad(form(x, edges)[0].sum(), x)
        return gradient[200].abs().max().item()

    assert slope(model) == 0
    assert slope(adaptive_form(model)) > 0


def test_the_mean_over_draws_is_the_mean() -> None:
    def noisy(x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)

    x = torch.zeros(2000, 1)
    drawn = MeanOverDraws(noisy, 16)(x, GRAPH.edge_index)
    assert drawn.std().item() == pytest.approx(0.25, rel=0.1)
