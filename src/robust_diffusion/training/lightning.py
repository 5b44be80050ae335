"""Lightning at work on one graph in memory: what it says, and its progress bar."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping
from tqdm import tqdm

NOT_FOR_ONE_GRAPH = (
    # One graph is one batch: worker processes would only copy it.
    "does not have many workers",
    # Lightning calls a torch function that newer versions of torch rename.
    "isinstance.treespec, LeafSpec.",
)

_BAR = "{desc}: {bar:10} {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"

LOGGERS = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]


def hide_advice() -> None:
    """Hide the advice above and banners on devices and tips, from now on; warnings stay."""
    for logger in LOGGERS:
        logger.setLevel(max(logger.level, logging.WARNING))
    for message in NOT_FOR_ONE_GRAPH:
        warnings.filterwarnings("ignore", message=f".*{message}")


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide advice and banners in a `with` block, from which Ctrl-C and SIGTERM reach the caller."""
    levels = [logger.level for logger in LOGGERS]
    try:
        with warnings.catch_warnings():
            hide_advice()
            yield
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # Lightning turns it into an exit
            raise type(stop.__context__) from stop
        raise
    finally:
        for logger, level in zip(LOGGERS, levels, strict=True):
            logger.setLevel(level)


class EpochProgressBar(pl.Callback):
    """One line for the whole training, with loss and accuracy; silent except on a terminal.

    It counts epochs, since each has a single batch. Its end, and so its time, is the epoch at which
    training stops if the loss gets no lower.
    """

    def __init__(self, description: str = "", refresh_seconds: float = 0.2) -> None:
        self._description = description
        self._refresh_seconds = refresh_seconds
        self._bar: tqdm[Any] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar."""
        self._bar = tqdm(
            total=trainer.max_epochs,
            desc=self._description,
            unit="epoch",
            leave=False,
            mininterval=self._refresh_seconds,
            dynamic_ncols=True,
            bar_format=_BAR,
            disable=not (trainer.is_global_zero and sys.stderr.isatty()),
        )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Advance by one epoch."""
        if self._bar is None or self._bar.disable:
            return
        done = int(self._bar.n) + 1
        ends = [
            done + stopping.patience - stopping.wait_count
            for stopping in trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(stopping, EarlyStopping)
        ]
        most = trainer.max_epochs
        self._bar.total = min([*ends, *([most] if most and most > 0 else [])], default=None)
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
        if self._bar is not None:
            self._bar.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that the error stands on a line of its own."""
        self.on_train_end(trainer, pl_module)
