"""A progress bar over epochs: with one graph there is one batch per epoch."""

import sys
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, ProgressBar
from tqdm import tqdm

BAR = "{desc}: {bar:10} {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"


class EpochProgressBar(ProgressBar):
    """One line for the whole training, with loss and accuracy; silent except on a terminal.

    Its end, and so its time, is the epoch at which training stops if the loss gets no lower.
    """

    def __init__(self, description: str = "", refresh_seconds: float = 0.2) -> None:
        super().__init__()
        self._description = description
        self._refresh_seconds = refresh_seconds
        self._bar: tqdm[Any] | None = None
        self._enabled = True

    def disable(self) -> None:
        """Turn the bar off, as Lightning does on all ranks but the first."""
        self._enabled = False

    def enable(self) -> None:
        """Turn the bar on."""
        self._enabled = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar."""
        self._bar = tqdm(
            total=trainer.max_epochs,
            desc=self._description,
            unit="epoch",
            leave=False,
            mininterval=self._refresh_seconds,
            dynamic_ncols=True,
            bar_format=BAR,
            disable=not self._enabled or not sys.stderr.isatty(),
        )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Advance by one epoch."""
        if self._bar is None or self._bar.disable:
            return
        self._bar.total = _last_epoch(trainer, done=self._bar.n + 1)
        if self._bar.update(1):
            metrics = trainer.callback_metrics
            self._bar.set_postfix_str(
                ", ".join(
                    f"{name}loss {metrics[f'{stage}_loss'].item():.3f} "
                    f"acc {metrics[f'{stage}_accuracy'].item():.3f}"
                    for stage, name in (("train", ""), ("val", "val "))
                    if f"{stage}_loss" in metrics
                ),
                refresh=False,
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that the error stands on a line of its own."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _last_epoch(trainer: pl.Trainer, *, done: float) -> int | None:
    """Epochs in all, unless the loss that an early stop waits for falls again."""
    ends = [
        int(done) + stopping.patience - stopping.wait_count
        for stopping in trainer.callbacks  # type: ignore[attr-defined]
        if isinstance(stopping, EarlyStopping)
    ]
    most = trainer.max_epochs
    return min([*ends, *([most] if most and most > 0 else [])], default=None)
