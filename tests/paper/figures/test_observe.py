from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hydra.utils import instantiate

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.build import edge_statistics, observe

Compose = Callable[..., Any]

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4, 4], [1, 0, 2, 1, 3, 2, 0, 3, 4, 0]])
"""A ring of four nodes, a self-loop, and one edge that runs one way only."""


def build(compose: Compose, *overrides: str) -> torch.nn.Module:
    torch.manual_seed(0)
    cfg = compose("model.hidden_channels=6", *overrides)
    model = instantiate(cfg.model)(in_channels=5, out_channels=3)
    assert isinstance(model, torch.nn.Module)
    return model


def features() -> torch.Tensor:
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("flow", ["heat", "grand", "p_laplacian"])
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_weights_are_those_of_the_state_after_diffusion(
    compose: Compose, flow: str, fidelity: str
) -> None:
    model = build(compose, f"flow={flow}", f"fidelity={fidelity}")
    layer, z, edges = observe(model, features(), EDGES)
    assert (layer, z.shape) == (1, (5, 6))
    pairs = set(zip(edges["src"], edges["dst"], strict=True))
    assert pairs == {(u, v) for u, v in EDGES.T.tolist() if u != v}
    assert (edges[["carried", "attention"]] >= 0).all(axis=None)
    # What arrives at a node sums to 1, the self-loop's share included.
    assert (edges.groupby("dst")["attention"].sum() < 1).all()
    if flow == "heat":  # without a modulation, both are the same
        assert np.allclose(edges["carried"], edges["attention"], rtol=1e-6)


def test_edges_pruned_by_a_guard_are_observed(compose: Compose) -> None:
    model = build(compose, "model=beltrami_guard", "model.threshold=0.9")
    assert (observe(model, features(), EDGES)[2]["carried"] == 0).any()
    free = build(compose, "model=beltrami_guard", "model.threshold=-1")
    assert (observe(free, features(), EDGES)[2]["carried"] > 0).all()


def test_a_model_without_a_flow_is_refused(compose: Compose) -> None:
    with pytest.raises(ConfigError, match="model="):
        observe(build(compose, "model=gcn"), features(), EDGES)


SRC = np.array([1, 2, 3, 0, 0, 0, 2])
DST = np.array([0, 0, 0, 1, 2, 3, 1])
LABEL = np.array([0, 0, 1, 1])
"""Edges between classes: 2 -> 0, 3 -> 0, 0 -> 2, 0 -> 3, 2 -> 1."""


def test_means_and_shares() -> None:
    weight = np.array([4.0, 1.0, 1.0, 2.0, 3.0, 5.0, 2.0])
    edges = pd.DataFrame({"src": SRC, "dst": DST, "carried": weight})
    found = edge_statistics(edges, "carried", LABEL)
    assert (found["intra_edges"], found["inter_edges"]) == (2, 5)
    assert found["intra_mean"] == pytest.approx(3.0)
    assert found["inter_mean"] == pytest.approx(12 / 5)
    assert found["inter_share"] == pytest.approx(12 / 18)
    # Of node 0: half the mean each; of 2 and 3 the only edge; of 1 one of two equal ones.
    assert found["inter_preference"] == pytest.approx(np.mean([0.5, 0.5, 1, 1, 1]))
