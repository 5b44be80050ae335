"""Lightning at work on one graph in memory: what it says, and its progress bar."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping

from robust_diffusion.system.progress import Progress

NOT_FOR_ONE_GRAPH = (
    # One graph is one batch: worker processes would only copy it.
    "does not have many workers",
    # Lightning calls a torch function that newer versions of torch rename.
    "isinstance.treespec, LeafSpec.",
)

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
    """Progress of a training in epochs, with its accuracies: a bar, or a line a minute.

    Its end, and so the time left, is the epoch at which training stops if the loss gets no lower.
    """

    def __init__(self, description: str = "") -> None:
        self._description = description
        self._progress: Progress | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar."""
        shown = trainer.is_global_zero
        self._progress = Progress(self._description, unit="epochs", shown=shown)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Advance by one epoch."""
        assert self._progress is not None
        epoch = self._progress.done + 1
        ends = [
            epoch + stopping.patience - stopping.wait_count
            for stopping in trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(stopping, EarlyStopping)
        ]
        most = trainer.max_epochs
        self._progress.total = min([*ends, *([most] if most and most > 0 else [])], default=None)
        if self._progress(1):  # reading a metric is a host sync on a GPU
            found = trainer.callback_metrics
            shown = {"train": "train_accuracy", "val": "val_accuracy"}
            told = [f"{k} {100 * found[v].item():.1f} %" for k, v in shown.items() if v in found]
            self._progress(note=", ".join(told))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.__exit__()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that the error stands on a line of its own."""
        self.on_train_end(trainer, pl_module)
