import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from robust_diffusion.attacks import Budget
from robust_diffusion.errors import ConfigError

GOOD = {"max_injected_nodes": 5, "max_edges_per_injected_node": 4, "feature_limits": (-0.5, 1.0)}
COUNTS = ["max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges"]


def budget(**changes: Any) -> Budget:
    return Budget(**GOOD | changes)


@pytest.mark.parametrize("limits", [[-1, 1], (-1.0, 1.0), OmegaConf.create([-1, 1.0])])
def test_limits_become_a_pair_of_floats(limits: Any) -> None:
    assert budget(feature_limits=limits).feature_limits == (-1.0, 1.0)
    assert all(type(limit) is float for limit in budget(feature_limits=limits).feature_limits)


@pytest.mark.parametrize("key", COUNTS)
def test_nothing_may_be_spent(key: str) -> None:
    assert getattr(budget(**{key: 0}), key) == 0


@pytest.mark.parametrize("limits", [(1.0, -1.0), (0.5, 0.5), (math.nan, 1.0), (), (1.0,)])
def test_limits_are_two_finite_numbers_in_order(limits: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match=r"budget\.feature_limits"):
        budget(feature_limits=limits)


def test_each_edge_of_a_node_needs_a_target() -> None:
    budget().check_targets(4)
    with pytest.raises(ConfigError, match=r"max_edges_per_injected_node=4: .* the 3 target nodes"):
        budget().check_targets(3)


@pytest.mark.parametrize("edges", [0, 4])
def test_an_attack_needs_a_target(edges: int) -> None:
    with pytest.raises(ConfigError, match="target nodes: none"):
        budget(max_edges_per_injected_node=edges).check_targets(0)


def test_limits_left_to_the_graph_are_its_range() -> None:
    x = torch.tensor([[-0.25, 0.5], [0.0, 0.75]])
    open_budget = budget(feature_limits=None)
    assert open_budget.resolve(x) == budget(feature_limits=(-0.25, 0.75))
    assert open_budget.resolve(x).limits == (-0.25, 0.75)
    assert open_budget.feature_limits is None


def test_limits_that_are_given_stay() -> None:
    assert budget().resolve(torch.full((2, 2), 9.0)) == budget()
    assert budget().limits == (-0.5, 1.0)


def test_limits_that_nobody_gave_are_told() -> None:
    with pytest.raises(ConfigError, match=r"budget\.feature_limits=null: give two numbers"):
        _ = budget(feature_limits=None).limits


@given(nodes=st.integers(0, 20), edges=st.integers(0, 20), total=st.integers(0, 450) | st.none())
def test_the_total_is_shared_out_evenly(nodes: int, edges: int, total: int | None) -> None:
    made = Budget(nodes, edges, (-1.0, 1.0), max_injected_edges=total)
    degrees = made.injected_degrees
    assert len(degrees) == nodes
    assert sum(degrees) == min(nodes * edges, nodes * edges if total is None else total)
    assert max(degrees, default=0) - min(degrees, default=0) <= 1
    assert degrees == sorted(degrees, reverse=True)
    assert max(degrees, default=0) <= edges


def test_a_total_that_leaves_each_node_few_edges_needs_few_targets() -> None:
    Budget(5, 50, (-1.0, 1.0), max_injected_edges=8).check_targets(2)
    with pytest.raises(ConfigError, match="the 1 target nodes"):
        Budget(5, 50, (-1.0, 1.0), max_injected_edges=8).check_targets(1)


@pytest.mark.parametrize(
    ("ratio", "count", "share"), [(0.2, 268, 53), (0.29, 100, 29), (0.0, 7, 0), (1.0, 7, 7)]
)
def test_shares_round_down_in_decimals(ratio: float, count: int, share: int) -> None:
    assert budget(node_ratio=ratio).max_changed_nodes(count) == share
    assert budget(edge_ratio=ratio).max_flipped_edges(count) == share
