from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion.models import GAT
from robust_diffusion.models.edge_values import OnEdgeValues
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness.trained import ModelTraining
from tests.backends import backend
from tests.models.small import gcn

Make = Callable[..., Any]


@pytest.fixture
def make_training(make_datamodule: Make, tmp_path: Path) -> Make:
    """Builds a ModelTraining on a small graph; keyword arguments replace its parts."""

    def build(**parts: Any) -> ModelTraining:
        given = {"datamodule": make_datamodule(), "seed": 0} | parts
        return ModelTraining(store=ArtifactStore(tmp_path / "store"), directory=tmp_path, **given)

    return build


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_what_reads_edge_values_is_trained_on_them_and_nothing_else(
    make_training: Make, make_datamodule: Make, make_fit: Make
) -> None:
    valued = make_training(datamodule=make_datamodule(edge_values="ids"))
    on_values = valued("victim", gcn, make_fit(), {"model": "gcn"}, description="gcn")
    on_ones = make_training()("victim", gcn, make_fit(), {"model": "gcn"}, description="gcn")
    assert isinstance(on_values.model, OnEdgeValues)
    assert on_values.path != on_ones.path
    assert not same_weights(on_values.model, on_ones.model)

    def gat(in_channels: int, out_channels: int) -> nn.Module:
        return GAT(in_channels, 8, out_channels)

    assert isinstance(valued.untrained(gat), GAT)


def test_another_graph_seed_key_backend_or_number_of_threads_is_another_model(
    make_training: Make, make_fit: Make, make_datamodule: Make
) -> None:
    def path(shape: Any = None, name: str = "torch", threads: int = 1, **parts: Any) -> Path:
        torch.set_num_threads(threads)
        try:
            with backend(name):
                training = make_training(**parts)
                made = training("victim", gcn, make_fit(max_epochs=1), shape or {}, description="")
                return Path(made.path)
        finally:
            torch.set_num_threads(1)

    paths = [path(), path(seed=1), path({"fit": 4}), path(name="reference"), path(threads=2)]
    paths.append(path(datamodule=make_datamodule(degree_leak=True)))
    assert len(set(paths)) == len(paths)


def test_what_was_trained_before_makes_no_difference(make_training: Make, make_fit: Make) -> None:
    alone = make_training()("victim", gcn, make_fit(), {"model": "b"}, description="b")
    torch.rand(1000)
    fresh = make_training(seed=0)
    fresh("victim", gcn, make_fit(), {"model": "a"}, description="a")
    after = fresh("victim", gcn, make_fit(), {"model": "c"}, description="c")
    assert same_weights(alone.model, after.model)
