import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from robust_diffusion.attacks import InjectionAdversary
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.models import MLP
from robust_diffusion.training import Fit, NodeClassification, module
from robust_diffusion.training.sparse_input import MAX_SHARE, sparse_input
from tests.training.toys import Linear, Overflowing, Scripted

Make = Callable[..., Any]


def test_stops_at_max_epochs_or_when_the_loss_no_longer_falls(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    seen: list[int] = []
    count = pl.callbacks.LambdaCallback(on_train_epoch_end=lambda *_: seen.append(len(seen)))
    fit = make_fit(max_epochs=4)
    result = fit(Linear(), make_datamodule(), directory=tmp_path, callbacks=[count])
    assert result.epochs == 4 == len(seen)
    assert result.seconds > 0
    datamodule, fit = make_datamodule(), make_fit(max_epochs=50, patience=3)
    constant = Scripted(datamodule.view("val"), [0.5] * 50)
    # The first epoch sets the loss to beat.
    assert fit(constant, datamodule, directory=tmp_path).epochs == 4


@pytest.mark.parametrize(("min_delta", "epochs"), [(0.0, 8), (1000.0, 3)])
def test_a_fall_below_min_delta_is_none(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, min_delta: float, epochs: int
) -> None:
    falling = [i / 10 for i in range(1, 9)]
    datamodule = make_datamodule()
    model = Scripted(datamodule.view("val"), falling)
    fit = make_fit(max_epochs=8, patience=2, min_delta=min_delta)
    assert fit(model, datamodule, directory=tmp_path).epochs == epochs


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [([0.2, 0.8, 0.4], 2), ([0.6, 0.4, 0.2], 1), ([0.2, 0.4, 0.6], 3), ([0.2, 0.6, 0.6], 2)],
)
def test_ends_with_the_weights_of_the_best_epoch(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, accuracies: list[float], best: int
) -> None:
    datamodule = make_datamodule()
    model = Scripted(datamodule.view("val"), accuracies)
    result = make_fit(patience=3)(model, datamodule, directory=tmp_path)
    assert result.epochs == 3
    assert result.module.model is model
    assert model.epoch == best
    assert not model.training
    assert result.val_accuracy == pytest.approx(max(accuracies))
    (stored,) = tmp_path.glob("*.ckpt")
    assert result.checkpoint == stored
    state = torch.load(stored, weights_only=True)["state_dict"]
    assert state["model.epoch"] == best


@pytest.mark.faults
@pytest.mark.parametrize("description", ["../../x heat", "/x heat", "{epoch} a/b"])
def test_the_checkpoint_stays_in_its_folder(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, description: str
) -> None:
    folder = tmp_path / "a" / "b"
    fit, graph = make_fit(max_epochs=1), make_datamodule()
    model = Scripted(graph.view("val"), [0.5])
    result = fit(model, graph, directory=folder, description=description)
    assert result.checkpoint.parent == folder
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("adversary", [None, InjectionAdversary()])
def test_an_infinite_loss_names_the_layer(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, adversary: Any
) -> None:
    fit = make_fit(key="threat.fit", adversary=adversary)
    with pytest.raises(TrainingError, match=r"blow .* threat\.fit\.learning_rate=0\.01"):
        fit(Overflowing(), make_datamodule(), directory=tmp_path)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"accelerator": "nope"}, "trainer.accelerator=nope"),
        ({"accelerator": "tpu"}, "trainer.accelerator=tpu"),
        ({"devices": 0}, "trainer.devices=0"),
        ({"precision": "bf16-true"}, "trainer.precision=bf16-true"),
        ({"max_steps": "abc"}, "trainer.max_steps=abc"),
        ({"max_epochs": 50}, "training.max_epochs"),
        ({"logger": True}, "trainer.logger=True"),
        ({"limit_val_batches": 0}, "trainer.limit_val_batches"),
    ],
)
def test_impossible_trainer_options_are_refused(
    make_datamodule: Make, tmp_path: Path, options: dict[str, Any], key: str
) -> None:
    fit = Fit(partial(pl.Trainer, **({"accelerator": "cpu"} | options)), max_epochs=1)
    with pytest.raises(ConfigError, match=re.escape(key)):
        fit(Linear(), make_datamodule(), directory=tmp_path)


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"check_val_every_n_epoch": 5}])
def test_without_a_validated_epoch_there_is_no_model(
    make_datamodule: Make, tmp_path: Path, options: dict[str, Any]
) -> None:
    fit = Fit(partial(pl.Trainer, accelerator="cpu", **options), max_epochs=2)
    with pytest.raises(TrainingError):
        fit(Linear(), make_datamodule(), directory=tmp_path)


@pytest.fixture
def _handler() -> Any:
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("_handler")
def test_ctrl_c_reaches_the_caller(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(NodeClassification, "validation_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_fit()(Linear(), make_datamodule(), directory=tmp_path)
    assert signal.getsignal(signal.SIGINT) == before


def test_a_bag_of_words_trains_the_same(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, seen = [], []
    for share in (MAX_SHARE, 0.0):
        monkeypatch.setattr(module, "sparse_input", partial(sparse_input, max_share=share))
        datamodule = make_datamodule()
        for stage in ("train", "val"):
            x = datamodule.view(stage).x
            x[:] = torch.where(torch.arange(x.numel()).view_as(x) % 29 == 0, x, -0.1)
        torch.manual_seed(0)
        model = MLP(16, 8, 7)
        model.register_forward_pre_hook(lambda _, given: seen.append(type(given[0])))
        result = make_fit(max_epochs=20)(model, datamodule, directory=tmp_path)
        assert result.module._prepared == {}
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    half = len(seen) // 2
    assert torch.Tensor not in seen[:half]
    assert set(seen[half:]) == {torch.Tensor}
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)
