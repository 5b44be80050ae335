from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion.models import GAT, GCN
from robust_diffusion.models.edge_values import OnEdgeValues
from tests.backends import backend

Make = Callable[..., Any]


def gcn(in_channels: int, out_channels: int) -> nn.Module:
    return GCN(in_channels, 8, out_channels)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_model_is_trained_once_and_then_found(
    make_training: Make, make_fit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = make_fit()
    first = make_training()("victim", gcn, fit, {"model": "gcn"}, description="gcn")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(type(fit), "__call__", never)
    second = make_training()("surrogate-gcn", gcn, fit, {"model": "gcn"}, description="gcn")
    assert (first.reused, second.reused) == (False, True)
    assert same_weights(first.model, second.model)
    for key in ("epochs", "val_accuracy", "seconds", "state", "path"):
        assert getattr(first, key) == getattr(second, key)
    assert not second.model.training


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


@pytest.mark.parametrize(
    ("data", "seed", "shape"),
    [
        ({"degree_leak": True}, 0, {"model": "gcn"}),
        ({}, 1, {"model": "gcn"}),
        ({}, 0, {"model": "gcn", "fit": {"max_epochs": 4}}),
    ],
)
def test_another_graph_seed_or_key_is_another_model(
    make_training: Make, make_fit: Make, make_datamodule: Make, data: Any, seed: int, shape: Any
) -> None:
    fit = make_fit()
    one = make_training()("victim", gcn, fit, {"model": "gcn"}, description="gcn")
    training = make_training(datamodule=make_datamodule(**data), seed=seed)
    other = training("victim", gcn, fit, shape, description="gcn")
    assert one.path != other.path
    assert not other.reused


def test_what_was_trained_before_makes_no_difference(make_training: Make, make_fit: Make) -> None:
    fit = make_fit()
    alone = make_training()("victim", gcn, fit, {"model": "b"}, description="b")
    torch.rand(1000)
    fresh = make_training(seed=0)
    fresh("victim", gcn, fit, {"model": "a"}, description="a")
    after = fresh("victim", gcn, fit, {"model": "c"}, description="c")
    assert same_weights(alone.model, after.model)


def test_backend_and_threads_count_unless_there_is_one(make_training: Make, make_fit: Make) -> None:
    def path(name: str = "torch", threads: int = 1) -> Path:
        torch.set_num_threads(threads)
        try:
            with backend(name):
                fitted = make_training()("victim", gcn, make_fit(), {}, description="gcn")
                return Path(fitted.path)
        finally:
            torch.set_num_threads(1)

    assert len({path(), path("reference"), path(threads=2), path(threads=3)}) == 4
