"""Which test nodes are scored and attacked."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.split import linear_margins
from robust_diffusion.errors import ConfigError
from tests.drawn import drawn_data
from tests.graphs import without_type_checks


def served(difficulty: str) -> GraphDataModule:
    return GraphDataModule.from_data(drawn_data(), difficulty=difficulty)


def test_random_targets_are_drawn_from_their_seed_alone() -> None:
    found = [served(f"random:9:{seed}").target_nodes for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(served("random:9").target_nodes, found[0])
    for nodes in found:
        assert len(nodes) == 9
        assert torch.isin(nodes, served("full").target_nodes).all()


def test_thirds_by_margin_hold_every_test_node_once_in_order() -> None:
    every = served("full")
    of = linear_margins(every.graph)
    thirds = [served(f"margin:{third}").target_nodes for third in ("low", "middle", "high")]
    assert torch.equal(torch.cat(thirds).sort().values, every.target_nodes)
    assert of[thirds[0]].max() <= of[thirds[1]].min() <= of[thirds[1]].max() <= of[thirds[2]].min()


def test_margins_are_those_of_ridge_regression_on_twice_propagated_features() -> None:
    graph = served("full").graph
    n, train = graph.num_nodes, graph.index_train.numpy()
    dense = torch.zeros(n, n, dtype=torch.double)
    dense[graph.edge_index[1], graph.edge_index[0]] = 1
    dense += torch.eye(n)
    scale = dense.sum(1).rsqrt()
    x = torch.cat([graph.x.double(), torch.ones(n, 1)], 1)
    x = (torch.linalg.matrix_power(scale[:, None] * dense * scale, 2) @ x).numpy()
    model = Ridge(alpha=1.0, fit_intercept=False).fit(x[train], np.eye(7)[graph.y[train]])
    scores = model.predict(x)
    own = scores[range(n), graph.y]
    scores[range(n), graph.y] = -np.inf
    assert linear_margins(graph).numpy() == pytest.approx(own - scores.max(1), abs=1e-9)


@pytest.mark.parametrize("name", ["extreme", "margin:", "nodes.txt", "random:0", "random:9999", 3])
def test_what_names_no_test_nodes_is_refused(name: Any) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=f"difficulty={name}: "):
        served(name).setup()
