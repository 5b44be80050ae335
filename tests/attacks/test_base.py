import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, PerturbedGraph, SpentBudget, spent_budget
from robust_diffusion.attacks.named import attack_names, build_attack
from robust_diffusion.data.validate import NAMES
from robust_diffusion.errors import ConfigError
from tests.graphs import both_ways

X = torch.tensor([[9.0, 9.0], [1.0, 2.0], [9.0, -9.0]])
CLEAN = Data(x=X, edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))


def perturbed(
    injected: list[list[float]], edges: list[tuple[int, int]], x: Tensor = X
) -> PerturbedGraph:
    """Three original nodes, then injected ones, and undirected edges."""
    x = torch.cat([x, torch.tensor(injected).reshape(-1, 2)])
    return PerturbedGraph(x, both_ways(edges), 3)


PATH = [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("injected", "edges", "spent"),
    [
        (
            [[0.25, -0.5], [0.75, 0.0], [0.25, 0.25]],
            [*PATH, (3, 0), (3, 2), (4, 1)],
            SpentBudget(3, 3, 2, (-0.5, 0.75)),
        ),
        # An edge between injected nodes counts once.
        ([[0.0, 1.0]] * 2, [*PATH, (3, 0), (3, 4)], SpentBudget(2, 2, 2, (0.0, 1.0))),
        ([], [(2, 1), (1, 0)], SpentBudget(0, 0, 0, None)),
        ([[0.5, 0.5]], PATH, SpentBudget(1, 0, 0, (0.5, 0.5))),
        *(
            ([], edges, SpentBudget(0, 0, 0, None, added_edges=added, removed_edges=removed))
            for added, removed, edges in ((0, 1, PATH[:1]), (1, 0, [*PATH, (2, 0)]), (0, 2, []))
        ),
    ],
)
def test_spent_counts_nodes_edges_and_features(
    injected: list[list[float]], edges: list[tuple[int, int]], spent: SpentBudget
) -> None:
    assert spent_budget(CLEAN, perturbed(injected, edges)) == spent


def test_spent_measures_the_features_that_changed() -> None:
    x = X + torch.tensor([[0.0, 0.0], [0.25, -0.5], [0.0, 0.125]])
    spent = spent_budget(CLEAN, perturbed([[7.0, 7.0]], [*PATH, (3, 1)], x))
    assert (spent.changed_nodes, spent.largest_feature_change) == (2, 0.5)
    assert (spent.added_edges, spent.removed_edges) == (0, 0)


@pytest.mark.parametrize("labels", [torch.int64, torch.int32, torch.uint8])
def test_a_graph_for_pyg(labels: torch.dtype) -> None:
    clean = CLEAN.clone()
    clean.y = torch.tensor([2, 0, 1], dtype=labels)
    clean.test_mask = torch.tensor([True, False, True])
    numbers = [pattern.format("test") for pattern in NAMES if "mask" not in pattern]
    for name in numbers:
        clean[name] = torch.tensor([0, 2])
    clean.has_mask = torch.ones((), dtype=torch.bool)
    graph = perturbed([[0.5, 0.5], [0.0, 1.0]], [*PATH, (3, 0), (4, 2)])
    data = replace(graph, clean=clean).to_data()
    assert data.validate()
    assert data.is_undirected()
    assert torch.equal(data.x, graph.x)
    assert data.y.tolist() == [2, 0, 1, -1, -1]
    assert data.test_mask.tolist() == [True, False, True, False, False]
    assert all(data[name].tolist() == [0, 2] for name in numbers)
    assert data.injected_mask.tolist() == [False] * 3 + [True] * 2
    assert {*graph.to_data().keys()} == {"x", "edge_index", "injected_mask"}


GOOD = {"max_injected_nodes": 5, "max_edges_per_injected_node": 4, "feature_limits": (-0.5, 1.0)}


def made(**changes: Any) -> Budget:
    return Budget(**GOOD | changes)


@pytest.mark.parametrize("limits", [(1.0, -1.0), (math.nan, 1.0), (1.0,), (-1e39, 1e39)])
def test_limits_are_two_finite_numbers_in_order(limits: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match=r"budget\.feature_limits"):
        made(feature_limits=limits)


def test_limits_left_to_the_graph_are_its_range() -> None:
    x = torch.tensor([[-0.25, 0.5], [0.0, 0.75]])
    open_budget = made(feature_limits=None)
    assert open_budget.resolve(x) == made(feature_limits=(-0.25, 0.75))
    assert open_budget.resolve(x).limits == (-0.25, 0.75)
    assert open_budget.feature_limits is None
    assert open_budget.resolve(torch.ones(2, 2)).limits == (1.0, 1.0)
    assert made().resolve(torch.full((2, 2), 9.0)) == made()
    with pytest.raises(ConfigError, match=r"budget\.feature_limits=null"):
        _ = open_budget.limits


@given(nodes=st.integers(0, 20), edges=st.integers(0, 20), total=st.integers(0, 450) | st.none())
def test_the_total_is_shared_out_evenly(nodes: int, edges: int, total: int | None) -> None:
    made = Budget(nodes, edges, (-1.0, 1.0), max_injected_edges=total)
    degrees = made.injected_degrees
    assert len(degrees) == nodes
    assert sum(degrees) == min(nodes * edges, nodes * edges if total is None else total)
    assert max(degrees, default=0) - min(degrees, default=0) <= 1
    assert degrees == sorted(degrees, reverse=True)
    assert max(degrees, default=0) <= edges


@pytest.mark.parametrize(
    ("ratio", "count", "share"), [(0.2, 268, 53), (0.29, 100, 29), (0.0, 7, 0), (1.0, 7, 7)]
)
def test_shares_round_down_in_decimals(ratio: float, count: int, share: int) -> None:
    assert made(node_ratio=ratio).max_changed_nodes(count) == share
    assert made(edge_ratio=ratio).max_flipped_edges(count) == share


@pytest.mark.parametrize("name", sorted({*attack_names()} - {"given"}))  # which needs a file
def test_an_attack_has_the_options_of_command_line(compose: Callable[..., Any], name: str) -> None:
    attack = build_attack(name)
    expected = instantiate(compose(f"attack={name}").attacks[name])
    assert type(attack) is type(expected)
    assert vars(attack) == vars(expected)
    # By hand, without any option, it is the same.
    assert vars(type(attack)()) == vars(expected)
