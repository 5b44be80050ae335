import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion.evaluation import trained
from robust_diffusion.evaluation.trained import code_hash
from robust_diffusion.models import GAT, GCN
from robust_diffusion.models.edge_values import OnEdgeValues

Make = Callable[..., Any]


def gcn(in_channels: int, out_channels: int) -> nn.Module:
    return GCN(in_channels, 8, out_channels)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_model_is_trained_once_and_then_found(
    make_trainer: Make, make_fit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = make_fit()
    first = make_trainer()("victim", gcn, fit, {"model": "gcn"}, description="gcn")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(type(fit), "__call__", never)
    second = make_trainer()("surrogate-gcn", gcn, fit, {"model": "gcn"}, description="gcn")
    assert (first.reused, second.reused) == (False, True)
    assert same_weights(first.model, second.model)
    assert (first.epochs, first.val_accuracy, first.seconds, first.state, first.path) == (
        second.epochs,
        second.val_accuracy,
        second.seconds,
        second.state,
        second.path,
    )
    assert not second.model.training


def test_what_reads_edge_values_is_trained_on_them_and_nothing_else(
    make_trainer: Make, make_datamodule: Make, make_fit: Make
) -> None:
    valued = make_trainer(datamodule=make_datamodule(edge_values="ids"))
    on_values = valued("victim", gcn, make_fit(), {"model": "gcn"}, description="gcn")
    on_ones = make_trainer()("victim", gcn, make_fit(), {"model": "gcn"}, description="gcn")
    assert isinstance(on_values.model, OnEdgeValues)
    assert on_values.path != on_ones.path
    assert not same_weights(on_values.model, on_ones.model)

    def gat(in_channels: int, out_channels: int) -> nn.Module:
        return GAT(in_channels, 8, out_channels)

    assert isinstance(valued.untrained(gat), GAT)


@pytest.mark.parametrize(
    ("parts", "shape"),
    [({"seed": 1}, {"model": "gcn"}), ({}, {"model": "gcn", "fit": {"max_epochs": 4}})],
)
def test_another_seed_or_configuration_is_another_model(
    make_trainer: Make, make_fit: Make, parts: dict[str, Any], shape: dict[str, Any]
) -> None:
    fit = make_fit()
    one = make_trainer()("victim", gcn, fit, {"model": "gcn"}, description="gcn")
    other = make_trainer(**parts)("victim", gcn, fit, shape, description="gcn")
    assert one.path != other.path
    assert not other.reused


def test_other_data_are_another_model(
    make_trainer: Make, make_fit: Make, make_datamodule: Make
) -> None:
    fit = make_fit()
    one = make_trainer()("victim", gcn, fit, {"model": "gcn"}, description="gcn")
    leaky = make_datamodule(degree_leak=True)
    other = make_trainer(datamodule=leaky)("victim", gcn, fit, {"model": "gcn"}, description="gcn")
    assert not other.reused
    assert other.path != one.path


def test_what_was_trained_before_makes_no_difference(make_trainer: Make, make_fit: Make) -> None:
    fit = make_fit()
    alone = make_trainer()("victim", gcn, fit, {"model": "b"}, description="b")
    torch.rand(1000)
    fresh = make_trainer(seed=0)
    fresh("victim", gcn, fit, {"model": "a"}, description="a")
    after = fresh("victim", gcn, fit, {"model": "c"}, description="c")
    assert same_weights(alone.model, after.model)


def test_the_code_hash_covers_whatever_a_training_or_an_attack_imports() -> None:
    program = (
        "import sys\n"
        "import robust_diffusion.attacks, robust_diffusion.models, robust_diffusion.training\n"
        "print(*(m.split('.')[1] for m in sys.modules if m.startswith('robust_diffusion.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    shaping = {part.removesuffix(".py") for part in trained.SHAPING}
    # What says that something is wrong, identifies or keeps what was computed, shapes nothing.
    assert set(done.stdout.split()) - {"checks", "errors", "hashes", "store"} == shaping


def test_the_code_hash_is_stable_and_short() -> None:
    assert code_hash() == code_hash()
    assert len(code_hash()) == 16


def test_other_arithmetic_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no model trained with one is taken from the store with the other."""
    hashes = set()
    for value in ("", "COMPATIBLE", "AVX2"):
        monkeypatch.setenv("MKL_CBWR", value)
        hashes.add(code_hash.__wrapped__())
    assert len(hashes) == 3


@pytest.mark.parametrize("name", ["kernel.cpp", "rows.h", "flow.py"])
def test_code_of_any_language_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(trained, "SOURCE", tmp_path)
    monkeypatch.setattr(trained, "SHAPING", ("operators",))
    file = tmp_path / "operators" / "native" / name
    file.parent.mkdir(parents=True)
    hashes = set()
    for text in ("one", "two"):
        file.write_text(text)
        hashes.add(code_hash.__wrapped__())
    assert len(hashes) == 2
