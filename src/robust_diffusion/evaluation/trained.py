"""Trained models: each is trained once and kept in the store."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from torch import nn

from robust_diffusion.arithmetic import held
from robust_diffusion.data import GraphDataModule
from robust_diffusion.hashes import state_hash
from robust_diffusion.models.edge_values import with_edge_values
from robust_diffusion.store import Artifact, ArtifactStore
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parents[1]

LANGUAGES = (".py", ".cpp", ".h")

SHAPING = (
    "arithmetic.py",
    "attacks",
    "data",
    "flows",
    "integrators",
    "models",
    "operators",
    "solver.py",
    "training",
)
"""What of the package shapes a trained model or a perturbed graph."""


@dataclass(frozen=True)
class TrainedModel:
    """A model with its best weights.

    Args:
        model: In eval mode, on the CPU.
        epochs: Epochs trained.
        seconds: Wall time of the training, whenever that was.
        val_accuracy: Best validation accuracy, in 0..1.
        state: Hash of its weights and buffers.
        path: Its entry in the store.
        reused: It was in the store already.
    """

    model: nn.Module
    epochs: int
    seconds: float
    val_accuracy: float
    state: str
    path: Path
    reused: bool


@dataclass(frozen=True)
class Trainer:
    """Trains models on one graph from one seed, or takes them from the store.

    Args:
        datamodule: Serves the train and val views.
        store: Where trained models are kept.
        seed: Of weights and training.
        directory: Where the checkpoints of what is trained now go, a folder each.
    """

    datamodule: GraphDataModule
    store: ArtifactStore
    seed: int
    directory: Path

    def untrained(self, build: Callable[..., nn.Module]) -> nn.Module:
        """A model as it is before its training.

        Args:
            build: Builds it from the numbers of features and classes.
        """
        pl.seed_everything(self.seed, workers=True, verbose=False)
        model = build(
            in_channels=self.datamodule.num_features, out_channels=self.datamodule.num_classes
        )
        return with_edge_values(model, self.datamodule)

    def __call__(
        self,
        kind: str,
        build: Callable[..., nn.Module],
        fit: Fit,
        shaped_by: Mapping[str, Any],
        *,
        description: str,
        logger: Logger | bool = False,
        callbacks: Sequence[pl.Callback] = (),
    ) -> TrainedModel:
        """Train a model, unless the store has it.

        The random state is set anew from the seed, so that what was trained or found before makes
        no difference.

        Args:
            kind: What it is for: names its folder.
            build: Builds it from the numbers of features and classes.
            fit: Trains it.
            shaped_by: Configuration of the model and its training.
            description: Names it in progress bar and log.
            logger: Lightning logger of its curves; a model from the store has none.
            callbacks: Further Lightning callbacks of its training.
        """

        def train() -> Artifact:
            fitted = fit(
                self.untrained(build),
                self.datamodule,
                directory=self.directory / kind,
                description=description,
                logger=logger,
                callbacks=callbacks,
            )
            return Artifact(
                fitted.module.model.state_dict(),
                {
                    "epochs": fitted.epochs,
                    "seconds": fitted.seconds,
                    "val_accuracy": fitted.val_accuracy,
                },
            )

        key = {
            "data": self.datamodule.fingerprint,
            "seed": self.seed,
            "code": code_hash(),
            **shaped_by,
        }
        artifact, reused = self.store.get_or_compute("model", key, train)
        if reused:
            log.info("%s: trained before, taken from the store", description)
        model = self.untrained(build)
        model.load_state_dict(artifact.tensors)
        return TrainedModel(
            model=model.eval(),
            **artifact.metadata,
            state=state_hash(model.state_dict()),
            path=self.store.path("model", key),
            reused=reused,
        )


@cache
def code_hash() -> str:
    """Short hash of the code that shapes trained models and perturbed graphs.

    Other arithmetic is other code: what it computed is not taken for this one's.
    """
    digest = hashlib.sha256("".join(f"{key}={value}\0" for key, value in held().items()).encode())
    for part in SHAPING:
        path = SOURCE / part
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in (file for file in found if file.suffix in LANGUAGES):
            digest.update(f"{file.relative_to(SOURCE).as_posix()}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
