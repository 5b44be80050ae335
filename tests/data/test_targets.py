"""Which test nodes are scored and attacked."""

from typing import Any

import pytest
import torch
from torch_geometric.utils import degree

from robust_diffusion import GraphDataModule
from robust_diffusion.errors import ConfigError
from tests.drawn import drawn_data


def served(difficulty: Any) -> GraphDataModule:
    return GraphDataModule.from_data(drawn_data(), difficulty=difficulty)


def test_targets_of_a_degree_are_the_test_nodes_of_it() -> None:
    every = served("full")
    degrees = degree(every.graph.edge_index[0], every.graph.num_nodes)
    found = served("degree:3-5").target_nodes
    of = degrees[every.target_nodes]
    assert torch.equal(found, every.target_nodes[(of >= 3) & (of <= 5)])
    assert 0 < len(found) < len(every.target_nodes)


def test_random_targets_are_drawn_from_their_seed_alone() -> None:
    found = [served(f"random:9:{seed}").target_nodes for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(served("random:9").target_nodes, found[0])
    for nodes in found:
        assert len(nodes) == 9
        assert torch.isin(nodes, served("full").target_nodes).all()


@pytest.mark.parametrize(
    "name", ["degree:5", "degree:9-2", "degree:a-b", "random:0", "random:9999", "random:", 3]
)
def test_what_names_no_test_nodes_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="difficulty"):
        served(name).setup()
