import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from robust_diffusion.errors import TrainingError
from robust_diffusion.training import progress
from robust_diffusion.training.progress import EpochProgressBar
from tests.training.toys import Linear, Overflowing


class Stream(io.StringIO):
    """A terminal, or a file that pretends to be none."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def train(
    make_datamodule: Callable[..., Any],
    make_fit: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., str]:
    """Trains for 4 epochs and returns what stands on the stream afterwards."""

    def trained(model: Any, *, terminal: bool, **options: Any) -> str:
        stream = Stream(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(
            "robust_diffusion.training.fit.EpochProgressBar",
            lambda description: EpochProgressBar(description, refresh_seconds=0.0),
        )
        fit = make_fit(**{"max_epochs": 4} | options)
        try:
            fit(model, make_datamodule(), directory=tmp_path, description="toy run")
        finally:
            monkeypatch.undo()
        return stream.getvalue()

    return trained


@pytest.mark.parametrize(
    "options", [{"terminal": False}, {"terminal": True, "progress_bar": False}]
)
def test_silent_without_a_terminal_or_switched_off(
    train: Callable[..., str], options: dict[str, bool]
) -> None:
    assert "toy run" not in train(Linear(), **options)


def test_draws_epochs_loss_and_accuracy(train: Callable[..., str]) -> None:
    drawn = train(Linear(), terminal=True)
    assert "toy run" in drawn
    assert "4/4" in drawn
    assert re.search(r", loss \d\.\d{3} acc \d\.\d{3}, val loss \d\.\d{3} acc \d\.\d{3}", drawn)
    # The line is cleared at the end.
    assert drawn.rstrip("\r").rpartition("\r")[2].strip() == ""


def test_end_moves_while_the_loss_falls(train: Callable[..., str]) -> None:
    ends = re.findall(r"(\d+)/(\d+) ", train(Linear(), terminal=True, max_epochs=50, patience=3))
    shown = {int(done): int(end) for done, end in ends}
    assert shown[1] == 4  # where it would stop if the first epoch were the best
    assert shown[2] in (4, 5)
    assert max(shown.values()) <= 50


def test_closes_on_an_error(train: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    class Recorded(progress.tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.closed = False
            opened.append(self)

        def close(self) -> None:
            super().close()
            self.closed = True

    monkeypatch.setattr(progress, "tqdm", Recorded)
    with pytest.raises(TrainingError):
        train(Overflowing(), terminal=True)
    assert [bar.closed for bar in opened] == [True]


def test_disabled_bar_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    bar = EpochProgressBar("toy run", refresh_seconds=0.0)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, callbacks=[bar])
    stream.truncate(0)
    bar.disable()
    bar.on_train_start(trainer, pl.LightningModule())
    bar.on_train_epoch_end(trainer, pl.LightningModule())
    assert "toy run" not in stream.getvalue()
