"""Training on several devices, by Lightning's DDP: each takes its share of an epoch's batches."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import Backend, current_backend, set_backend
from robust_diffusion.system.arithmetic import set_up_arithmetic
from robust_diffusion.system.files import write_whole
from robust_diffusion.training.lightning import hide_advice


def on_several(
    build: Callable[..., pl.Trainer], trainer: pl.Trainer, datamodule: GraphDataModule
) -> pl.Trainer:
    """The trainer, or one of its devices' processes if it has several devices.

    The processes are started by this one. Lightning's own choice would start the command line
    again, and the whole run with it.

    Raises:
        ConfigError: More devices than batches, several machines, or another strategy than DDP.
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
            found = {"epochs": trainer.current_epoch, "score": score.item()}
            write_whole(self._path, json.dumps(found), option="training:")

    def read(self) -> tuple[int, float]:
        """Epochs, and the best score; the file is removed."""
        found = json.loads(self._path.read_text(encoding="utf-8"))
        self._path.unlink()
        return found["epochs"], found["score"]
