"""Lightning at work on one graph in memory: what it says, its progress bar, and several devices."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import Backend, current_backend, set_backend
from robust_diffusion.system.arithmetic import set_up_arithmetic
from robust_diffusion.system.files import write_whole
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
            logged = trainer.callback_metrics
            shown = {"train": "train_accuracy", "val": "val_accuracy"}
            notes = [f"{k} {100 * logged[v].item():.1f} %" for k, v in shown.items() if v in logged]
            self._progress(note=", ".join(notes))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.__exit__()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that the error stands on a line of its own."""
        self.on_train_end(trainer, pl_module)


def on_several(
    build: Callable[..., pl.Trainer], trainer: pl.Trainer, datamodule: GraphDataModule
) -> pl.Trainer:
    """The trainer, or one of its devices' processes if it has several devices.

    The processes are started by this one. Lightning's own choice would start the command line
    again, and the whole run with it.
    """
    world, batches = trainer.world_size, datamodule.batching.batches_per_epoch
    if world == 1:
        return trainer
    devices = f"trainer.devices={trainer.num_devices}"
    if trainer.num_nodes > 1:
        raise ConfigError(
            f"trainer.num_nodes={trainer.num_nodes}: a model is trained on one machine; use "
            "trainer.num_nodes=1"
        )
    if batches == 1:
        raise ConfigError(
            f"{devices}: batching=full trains a graph as one batch, so on one device; use "
            "trainer.devices=1, or batching=clusters"
        )
    if batches < world:
        raise ConfigError(
            f"{devices}: an epoch has only {batches} batches; use fewer devices, or smaller "
            "batching.parts_per_batch"
        )
    if not isinstance(trainer.strategy, pl.strategies.DDPStrategy):
        raise ConfigError(f"trainer.strategy: {devices} needs ddp; use trainer.strategy=ddp")
    datamodule.train_dataloader()  # cut once, not by each process
    return build(strategy="ddp_spawn")


def on_one(build: Callable[..., pl.Trainer], trainer: pl.Trainer) -> pl.Trainer:
    """The trainer, or one on the first of its devices: a graph is tested as a whole."""
    if trainer.world_size == 1:
        return trainer
    first: Any = 1 if trainer.strategy.root_device.type == "cpu" else trainer.device_ids[:1]
    return build(devices=first, num_nodes=1, strategy="auto")


class Outcome(pl.Callback):
    """Epochs and best score of a training, passed in a file.

    Processes of several devices hand back only the weights and the path of the checkpoint. They
    also compute as this process does: by the same backend and arithmetic.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backend = cast(Backend, current_backend())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set up a process that has just been started, to which this object comes first."""
        self.__dict__.update(state)
        hide_advice()
        set_up_arithmetic()
        set_backend(self._backend)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file."""
        checkpoint = trainer.checkpoint_callback
        assert isinstance(checkpoint, ModelCheckpoint)
        score = checkpoint.best_model_score
        if trainer.is_global_zero and score is not None:
            summary = {"epochs": trainer.current_epoch, "score": score.item()}
            write_whole(self._path, json.dumps(summary), option="training:")

    def read(self) -> tuple[int, float]:
        """Epochs, and the best score; the file is removed."""
        summary = json.loads(self._path.read_text(encoding="utf-8"))
        self._path.unlink()
        return summary["epochs"], summary["score"]
