import io
import logging
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import TrainingError
from robust_diffusion.training import quiet_lightning
from robust_diffusion.training.lightning import EpochProgressBar
from tests.training.toys import Linear, Overflowing


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def train(
    make_datamodule: Callable[..., Any],
    make_fit: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., str]:
    """Trains for 4 epochs and returns what stands on the stream afterwards."""

    def trained(model: Any, stream: Any, **options: Any) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        often = partial(EpochProgressBar, refresh_seconds=0.0)
        monkeypatch.setattr("robust_diffusion.training.fit.EpochProgressBar", often)
        fit = make_fit(**{"max_epochs": 4} | options)
        try:
            fit(model, make_datamodule(), directory=tmp_path, description="toy run")
        finally:
            monkeypatch.undo()
        return str(stream.getvalue())

    return trained


def test_silent_without_a_terminal_or_switched_off(train: Callable[..., str]) -> None:
    assert "toy run" not in train(Linear(), io.StringIO())
    assert "toy run" not in train(Linear(), Terminal(), progress_bar=False)


def is_cleared(drawn: str) -> bool:
    return drawn.rstrip("\r").rpartition("\r")[2].strip() == ""


def test_draws_epochs_loss_and_accuracy(train: Callable[..., str]) -> None:
    drawn = train(Linear(), Terminal())
    assert "toy run" in drawn
    assert "4/4" in drawn
    assert re.search(r", loss \d\.\d{3} acc \d\.\d{3}, val loss \d\.\d{3} acc \d\.\d{3}", drawn)
    assert is_cleared(drawn)


def test_end_moves_while_the_loss_falls(train: Callable[..., str]) -> None:
    ends = re.findall(r"(\d+)/(\d+) ", train(Linear(), Terminal(), max_epochs=50, patience=3))
    shown = {int(done): int(end) for done, end in ends}
    assert shown[1] == 4  # where it would stop if the first epoch were the best
    assert shown[2] in (4, 5)
    assert max(shown.values()) <= 50


def test_closes_on_an_error(train: Callable[..., str]) -> None:
    stream = Terminal()
    with pytest.raises(TrainingError):
        train(Overflowing(), stream)
    assert "toy run" in stream.getvalue()
    assert is_cleared(stream.getvalue())


HIDDEN = [
    "The 'train_dataloader' does not have many workers which may be a bottleneck.",
    "`isinstance(treespec, LeafSpec)` is deprecated, use `treespec.is_leaf()` instead.",
]


def test_advice_for_many_batches_is_hidden_inside_and_other_warnings_stay() -> None:
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet_lightning():
            for message in [*HIDDEN, "something is wrong"]:
                warnings.warn(message, UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["something is wrong"]
    assert list(warnings.filters) == before


def test_banners_are_hidden_inside_alone(caplog: pytest.LogCaptureFixture) -> None:
    banners = logging.getLogger("pytorch_lightning")
    with caplog.at_level(logging.INFO, "pytorch_lightning"):
        with quiet_lightning():
            banners.info("GPU available: False")
            banners.warning("no validation loader")
        banners.info("seed set")
    assert [record.message for record in caplog.records] == ["no validation loader", "seed set"]


def test_an_exit_that_is_no_ctrl_c_stays_one() -> None:
    with pytest.raises(SystemExit) as caught, quiet_lightning():
        raise SystemExit(3)
    assert caught.value.code == 3
