"""Epochs as CUDA graphs, with replays that the CPU stands in for; on a card: tests/test_gpu.py."""

import gc
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LambdaCallback
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from robust_diffusion.attacks import InjectionAdversary
from robust_diffusion.data import batching
from robust_diffusion.errors import TrainingError
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE
from robust_diffusion.training import Fit, cuda_graphs
from robust_diffusion.training.cuda_graphs import record

Make = Callable[..., Any]
REPLAYS: list[None] = []
PYTHON = random.Random()
"""Stands in for Python's generator, from which checks of types draw in every call."""


class Normed(nn.Module):
    """Has buffers; it may count or draw on the host, or fail in an epoch."""

    def __init__(self, does: str = "") -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 7), nn.BatchNorm1d(7)
        self.does, self.calls, self.stored = does, 0, {"calls": [0]}

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += self.does == "counts"
        self.stored["calls"][0] += self.does == "stores"
        if self.does == "draws" and PYTHON.random() < 0.5:
            x = x.flip(1)
        if self.does == "draws by NumPy" and np.random.rand() < 0.5:  # noqa: NPY002
            x = x.flip(1)
        logits = self.norm(self.linear(x)) * (1 + self.calls % 2)
        if self.does == "fails" and self.training:
            # An infinite loss with finite gradients, so that later epochs could be better.
            fails = (self.norm.num_batches_tracked == 5) & (torch.arange(7) == 0)
            logits = logits.masked_fill(fails, -math.inf)
        return logits  # type: ignore[no-any-return]


def stand_in(function: Callable[[], object]) -> Callable[[], object]:
    """A recording that runs the function to warm up, and again at each replay."""
    function()
    return lambda: REPLAYS.append(None) or function()


@pytest.fixture
def train(make_datamodule: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Trains on the CPU, plainly or recorded; returns everything that is logged and kept."""
    monkeypatch.setattr(cuda_graphs, "record", stand_in)
    monkeypatch.setattr(cuda_graphs, "random", PYTHON)
    # It would draw a seed from the generator that draws dropout here, but not on a card.
    loader = partial(DataLoader, generator=torch.Generator())
    monkeypatch.setattr(batching, "DataLoader", loader)

    folders = (tmp_path / str(number) for number in count())

    def run(build: Make, *, recorded: bool, error: Any = None, **options: Any) -> dict[str, Any]:
        monkeypatch.setattr(cuda_graphs, "DEVICE", "cpu" if recorded else "cuda")
        REPLAYS.clear()
        torch.manual_seed(0)
        PYTHON.seed(0)
        np.random.seed(0)  # noqa: NPY002 - as models draw
        data, folder = make_datamodule(), next(folders)
        logger = options.pop("logger", CSVLogger)(folder, flush_logs_every_n_steps=1)
        call = {"logger": logger, "directory": folder, "callbacks": options.pop("callbacks", ())}
        quiet = {"accelerator": "cpu", "enable_model_summary": False, "log_every_n_steps": 1}
        trainer = partial(pl.Trainer, **quiet | options.pop("trainer", {}))
        fit, result = Fit(trainer, **{"max_epochs": 12, "progress_bar": False} | options), None
        with pytest.raises(error) if error else nullcontext():
            result = fit(build(), data, **call)
        (path,) = folder.glob("*.ckpt")
        kept = torch.load(path)
        found = {"best": kept["epoch"] + 1, "log": Path(logger.log_dir, "metrics.csv").read_text()}
        if result is not None:
            assert result.best_epoch == found["best"]
            found |= {"epochs": result.epochs, "accuracy": result.val_accuracy}
        return found | {key: value.tolist() for key, value in kept["state_dict"].items()}

    return run


MODELS = {
    "gcn": partial(GCN, 16, 8, out_channels=7, dropout=0.5),
    # Its biases, redrawn in each training pass, are buffers that are replaced.
    "released": partial(
        GraphPDE,
        16,
        4,
        out_channels=7,
        flow=partial(Beltrami, attention="resampled"),
        solver=Solver("euler", num_steps=1),
        num_layers=1,
    ),
    "normed": Normed,
}

ON_EPOCH = LambdaCallback(on_train_epoch_end=lambda *_: None)


@pytest.mark.parametrize("ahead", [1, 7])
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_by_replays_is_the_same(
    train: Make, monkeypatch: pytest.MonkeyPatch, name: str, ahead: int, *, stops: bool
) -> None:
    monkeypatch.setattr(cuda_graphs, "AHEAD", ahead)
    # A high rate makes the loss rise now and then, and a large delta ends its improvements.
    options = {"learning_rate": 0.1, "patience": 4, "min_delta": 0.02} if stops else {}
    options |= {"max_epochs": 100 if stops else 10}
    plain = train(MODELS[name], recorded=False, **options)
    replayed = train(MODELS[name], recorded=True, **options)
    assert replayed == plain
    assert plain["epochs"] < 100 if stops else plain["epochs"] == 10
    # Two are compared with plain epochs, and none runs after early stopping.
    assert len(REPLAYS) == 2 + plain["epochs"] - 1


def test_an_infinite_loss_ends_the_best_weights_with_it(train: Make) -> None:
    build = partial(Normed, "fails")
    runs = [train(build, recorded=way, error=TrainingError) for way in (False, True)]
    assert runs[0] == runs[1]
    assert len(REPLAYS) > 2 + 4


def frozen(function: Callable[[], object]) -> Callable[[], object]:
    return lambda: torch.manual_seed(1) and function()


def failing(function: Callable[[], object]) -> Callable[[], object]:
    function()
    raise RuntimeError("no memory\nat all")


def hooked() -> nn.Module:
    model = Normed()
    model.linear.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("reason", "build", "options"),
    [
        ("an epoch changes attributes of the model", partial(Normed, "counts"), {}),
        ("an epoch changes attributes of the model", partial(Normed, "stores"), {}),
        ("an epoch draws random numbers on the host", partial(Normed, "draws"), {}),
        ("an epoch draws random numbers on the host", partial(Normed, "draws by NumPy"), {}),
        ("the model has hooks", hooked, {}),
        ("replayed epochs differ from plain ones", MODELS["gcn"], {"record": frozen}),
        ("no memory", MODELS["gcn"], {"record": failing}),
        ("LambdaCallback has on_train_epoch_end", Normed, {"callbacks": [ON_EPOCH]}),
        ("trainer.gradient_clip_val is 1.0", Normed, {"trainer": {"gradient_clip_val": 1.0}}),
        ("adversarial training", MODELS["gcn"], {"adversary": InjectionAdversary()}),
    ],
)
def test_epochs_that_cannot_be_recorded_run_as_they_are_written(
    train: Make,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    build: Make,
    options: dict[str, Any],
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(cuda_graphs, "record", options.get("record", stand_in))
    options = {key: value for key, value in options.items() if key != "record"}
    plain = train(build, recorded=False, **options)
    assert "CUDA graph" not in caplog.text
    assert train(build, recorded=True, **options) == plain
    assert caplog.text.count(f"training without a CUDA graph: {reason}") == 1


@pytest.mark.parametrize("changed", ["attribute", "rate", "gradient", "data"])
def test_attributes_changed_since_the_recording_count(
    train: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    modules: list[pl.LightningModule] = []

    class Changing(CSVLogger):
        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            super().log_metrics(metrics, step)
            module = modules[0]
            weight = next(module.parameters())
            if step != 3:
                return
            if changed == "attribute":
                module.model.does = "counts"
            elif changed == "rate":
                module.trainer.optimizers[0].param_groups[0]["lr"] = 0.0
            elif changed == "data":
                weight.data = weight.detach() + 1
            else:
                weight.requires_grad = False

    caplog.set_level("INFO")
    monkeypatch.setattr(cuda_graphs, "AHEAD", 2)
    remember = LambdaCallback(on_fit_start=lambda _, module: modules.insert(0, module))
    found = train(Normed, recorded=True, logger=Changing, callbacks=[remember])
    assert found["epochs"] == 12
    assert "CUDA graph: ended" in caplog.text
    assert len(REPLAYS) - 2 < 8


def test_a_recording_that_fails_restores_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[torch.Generator] = []
    modes: list[Any] = []
    generator = SimpleNamespace(device=torch.device("cpu"), graphsafe_set_state=states.append)
    stream = SimpleNamespace(wait_stream=lambda _: None)
    replay = partial(int)

    @contextmanager
    def graph(*_: Any, **__: Any) -> Iterator[None]:
        assert not gc.isenabled()
        yield

    for name, value in {
        "default_generators": [generator],
        "current_device": lambda: 0,
        "current_stream": lambda: stream,
        "Stream": lambda: stream,
        "stream": lambda _: nullcontext(),
        "CUDAGraph": lambda: SimpleNamespace(replay=replay),
        "graph": graph,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": modes.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    runs: list[Any] = []
    assert record(lambda: runs.append(modes[-1])) is replay
    assert runs == ["error", 0]
    assert not states
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 // 0)
    assert (len(states), modes[-1], gc.isenabled()) == (1, 0, True)
