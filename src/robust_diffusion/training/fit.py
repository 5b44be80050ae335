"""Training by GRB's protocol, which keeps the best checkpoint, and in one call."""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from annotated_types import Ge, Gt, Le
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import Logger
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.checks import Count, NonNegative, check_choice, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import UNWRITABLE, ConfigError, TrainingError
from robust_diffusion.models.checked import (
    TriedModel,
    check_model,
    device_of,
    dtype_of,
    own_context,
)
from robust_diffusion.training.lightning import (
    EpochProgressBar,
    Outcome,
    on_one,
    on_several,
    quiet_lightning,
)
from robust_diffusion.training.module import Adversary, NodeClassification

log = logging.getLogger(__name__)

PRECISIONS = ("32", "32-true", "bf16-mixed", "16-mixed")
"""Precisions of training; graphs, attacks and tests are of single precision."""

LARGEST_FACTOR = 1e37
"""Largest learning rate or weight decay: ten times it, Adam's first step, is finite in float32."""

SET_BY_FIT = {"max_epochs", "logger", "callbacks", "enable_progress_bar", "enable_checkpointing"}
"""Lightning's options that a fit sets."""

UNREPORTED = {"deterministic", "enable_model_summary", "log_every_n_steps", "num_sanity_val_steps"}
"""Options that every `conf/trainer/` sets and no error is about."""


@dataclass(frozen=True)
class FitResult:
    """Result of a fit.

    Examples:
        >>> from robust_diffusion import MLP, fit
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> result = fit(MLP(8, 8, 7), data, max_epochs=2, accelerator="cpu", progress=False)
        >>> result.epochs, result.checkpoint
        (2, None)
    """

    module: NodeClassification  # with the best weights, in eval mode on the CPU
    epochs: int  # epochs trained
    seconds: float  # wall time of the training
    val_accuracy: float  # best validation accuracy, in 0..1
    checkpoint: Path | None  # file of the best weights, if it was kept
    best_epoch: int  # the one whose weights are kept, from 1


@contextmanager
def _checkpoint_errors(directory: Path) -> Iterator[None]:
    """Name the folder of a checkpoint that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        # Lightning writes a checkpoint to the temporary folder first, and names neither.
        raise TrainingError(
            f"{directory}: the checkpoint cannot be written ({error.strerror}); free space "
            f"there and in {gettempdir()}, or set TMPDIR to another folder"
        ) from error


@validated("{key}")
class Fit:
    """GRB's protocol: Adam, cross-entropy, early stop on validation loss, best accuracy kept.

    Reference: "Implementation Details", arXiv:2209.07754; GRB's trainer.

    Args:
        trainer: Builds a Lightning trainer; gets max_epochs, logger, callbacks.
        max_epochs: Most epochs, at least 1.
        patience: Epochs without a lower validation loss after which training stops, at least 1.
        min_delta: Smallest decrease of the validation loss that is an improvement.
        learning_rate: Adam's, above 0, at most 1e37.
        weight_decay: Adam's, at least 0, at most 1e37.
        progress_bar: Show a bar on a terminal.
        adversary: Attacks the graph in training; `None`, or an empty configuration, for none.
        key: The configuration key of this fit, for messages.

    Raises:
        ConfigError: A number out of range, or no adversary.

    Examples:
        >>> from functools import partial
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion import MLP, Fit, GraphDataModule
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> trainer = partial(pl.Trainer, accelerator="cpu", enable_model_summary=False)
        >>> train = Fit(trainer, max_epochs=2, progress_bar=False)
        >>> with TemporaryDirectory() as folder:
        ...     result = train(
        ...         MLP(8, 8, 7), GraphDataModule.from_data(data), directory=Path(folder)
        ...     )
        >>> result.epochs
        2
    """

    def __init__(
        self,
        trainer: Callable[..., pl.Trainer],
        *,
        max_epochs: Count = 5000,
        patience: Count = 500,
        min_delta: NonNegative = 1e-5,
        learning_rate: Annotated[float, Gt(0), Le(LARGEST_FACTOR)] = 0.01,
        weight_decay: Annotated[float, Ge(0), Le(LARGEST_FACTOR)] = 0.0,
        progress_bar: bool = True,
        adversary: Adversary | Mapping[str, Any] | None = None,
        key: str = "training",
    ) -> None:
        self._trainer = trainer
        self.max_epochs = max_epochs
        self.patience = patience
        self.min_delta = min_delta
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.progress_bar = progress_bar
        if adversary and not isinstance(adversary, Adversary):
            raise ConfigError(f"{key}.adversary={adversary}: is none; use adversary=injection")
        self.adversary = adversary if isinstance(adversary, Adversary) else None
        self.key = key

    def __call__(
        self,
        model: nn.Module,
        datamodule: GraphDataModule,
        *,
        directory: Path,
        description: str = "",
        logger: Logger | Sequence[Logger] | bool = False,
        callbacks: Sequence[pl.Callback] = (),
        model_config: Mapping[str, Any] | None = None,
    ) -> FitResult:
        """Train `model` on the graph of `datamodule`.

        Args:
            model: Trained in place; ends with its best weights.
            datamodule: Serves the train and val views.
            directory: Where the best checkpoint goes.
            description: Names the training in progress bar and log.
            logger: Lightning logger of the loss and accuracy curves.
            callbacks: Further Lightning callbacks.
            model_config: Configuration of the model, which the checkpoint keeps; `None` if it has
                none.

        Raises:
            ConfigError: The trainer's device is missing or an option cannot be.
            TrainingError: The loss is not finite, or no epoch was validated.
        """
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ConfigError(
                f"model: expected parameters to train, got none in {type(model).__name__}; skip "
                "the training"
            )
        module = NodeClassification(
            model,
            num_classes=datamodule.num_classes,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            adversary=self.adversary,
            key=self.key,
            model_config=model_config,
        )
        checkpoint, stopping, *bar = self._callbacks(directory, description)
        outcome = Outcome(directory / "outcome.json")
        with quiet_lightning():
            build = partial(
                self._build_trainer,
                max_epochs=self.max_epochs,
                logger=logger,
                callbacks=[checkpoint, stopping, outcome, *bar, *callbacks],
            )
            trainer = on_several(build, build(), datamodule)
            start = time.perf_counter()
            with _checkpoint_errors(directory):
                trainer.fit(module, datamodule)
            seconds = time.perf_counter() - start
        assert isinstance(checkpoint, ModelCheckpoint)
        if not checkpoint.best_model_path:
            raise TrainingError(
                "no epoch was trained and validated, so there is no model; the options of trainer "
                "must let at least one be"
            )
        path = Path(checkpoint.best_model_path)
        best = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(best["state_dict"])
        epochs, score = outcome.read()
        best_epoch = best["epoch"] + 1
        message = "%s: %d epochs (best %d) in %.1f s, best validation accuracy %.2f %%"
        shared = {"shared": self.key != "training"}  # a surrogate's
        log.info(message, description, epochs, best_epoch, seconds, 100 * score, extra=shared)
        return FitResult(module.eval(), epochs, seconds, score, path, best_epoch)

    def _callbacks(self, directory: Path, description: str) -> list[pl.Callback]:
        """Return the checkpoint of the best weights, the early stop and, if it is shown, a bar."""
        checkpoint = ModelCheckpoint(
            directory,
            filename="-".join([*re.findall(r"[\w.+-]+", description), "best"]),
            monitor="val_accuracy",
            mode="max",
            save_weights_only=True,
            enable_version_counter=False,
        )
        stopping = EarlyStopping(
            "val_loss", patience=self.patience, min_delta=self.min_delta, check_finite=False
        )
        return [checkpoint, stopping, *[EpochProgressBar(description)][: self.progress_bar]]

    def trainer(self) -> pl.Trainer:
        """A trainer to test with, on the device where this fit trains, or the first of several."""
        with quiet_lightning():
            build = partial(
                self._build_trainer,
                logger=False,
                callbacks=[],
                enable_checkpointing=False,
            )
            return on_one(build, build())

    def _build_trainer(self, **arguments: Any) -> pl.Trainer:
        # Lightning's own bar counts batches, and an epoch has one.
        arguments["enable_progress_bar"] = False
        keywords: Mapping[str, Any] = getattr(self._trainer, "keywords", {})
        for key in arguments.keys() & keywords.keys() & SET_BY_FIT:
            raise ConfigError(
                f"trainer.{key}={keywords[key]}: a fit sets it by itself; drop it"
                + (f", or set {self.key}.{key}" if hasattr(self, key) else "")
            )
        if "precision" in keywords:
            check_choice("trainer.precision", str(keywords["precision"]), PRECISIONS)
        try:
            trainer = self._trainer(**arguments)
        except (MisconfigurationException, ImportError, TypeError, ValueError) as error:
            shown = [f"trainer.{k}={v}" for k, v in keywords.items() if k not in UNREPORTED]
            reason = " ".join(str(error).split()).rstrip(".!")
            raise ConfigError(f"{', '.join(shown)}: {reason}; trainer=cpu runs anywhere") from error
        if not trainer.limit_train_batches or not trainer.limit_val_batches:
            raise ConfigError(
                "trainer.limit_train_batches, trainer.limit_val_batches: every epoch trains and "
                "validates on the one graph; drop them"
            )
        return trainer


@own_context()
def fit(
    model: nn.Module,
    data: Data | GraphDataModule,
    *,
    max_epochs: int = 5000,
    patience: int = 500,
    learning_rate: float = 0.01,
    weight_decay: float = 0.0,
    accelerator: str = "auto",
    adversary: Adversary | None = None,
    directory: str | Path | None = None,
    progress: bool = True,
    transductive: bool = False,
) -> FitResult:
    """Train a model on the training nodes, with early stopping on the validation nodes; see `Fit`.

    Training is inductive, as in GRB: the model sees the subgraph of the training nodes, and no
    validation or test node. On a citation graph it ends a few points below the usual transductive
    loop, in which the model sees the whole graph without the labels of the others.

    Call `torch.manual_seed` before you build the model to repeat a training.

    Args:
        model: Any `nn.Module` of (x, edge_index); trained in place, ends with its best weights.
        data: A `Data` with a split (see `GraphDataModule.from_data`), or a datamodule.
        max_epochs: At least 1.
        patience: Epochs without a lower validation loss after which training stops, at least 1.
        learning_rate: Adam's, above 0.
        weight_decay: Adam's, at least 0.
        accelerator: Lightning's: auto, cpu, gpu.
        adversary: Attacks the graph in training, such as `InjectionAdversary`; `None` for none.
        directory: Where the best checkpoint goes; `None` to keep none.
        progress: Show a bar on a terminal.
        transductive: Show the model the whole graph in training, without the labels of validation
            and test nodes. A datamodule has its own setting.

    Raises:
        ConfigError: A number out of range, or the model does not fit the graph.
        DataError: The graph has no split, or is not a graph that a model can be trained on.
        TrainingError: The loss is not finite.

    Examples:
        >>> from robust_diffusion import MLP, fit
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> result = fit(MLP(8, 8, 7), data, max_epochs=2, accelerator="cpu", progress=False)
        >>> 0 <= result.val_accuracy <= 1
        True
    """
    if not isinstance(data, GraphDataModule):
        data = GraphDataModule.from_data(data, transductive=transductive)
    elif transductive and not data.transductive:
        raise ConfigError(
            "transductive=True: the datamodule is inductive; build it with transductive=True"
        )
    tried = _tried(model, data)
    trainer = partial(
        pl.Trainer,
        accelerator=accelerator,
        devices=1,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        enable_model_summary=False,
    )
    train = Fit(
        trainer,
        max_epochs=max_epochs,
        patience=patience,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        progress_bar=progress,
        adversary=adversary,
        key="fit",
    )
    with ExitStack() as stack:
        folder = directory or stack.enter_context(TemporaryDirectory())
        stack.enter_context(tried.safe_inputs())
        result = train(model, data, directory=Path(folder))
    return result if directory is not None else replace(result, checkpoint=None)


def _tried(model: nn.Module, datamodule: GraphDataModule) -> TriedModel:
    """Return the model tried on the validation view, whose classes it must tell."""
    view, classes = datamodule.view("val"), datamodule.num_classes
    assert view.x is not None
    assert view.edge_index is not None
    device, dtype = device_of(model), dtype_of(model, view.x.dtype)
    x, edge_index = view.x.to(device, dtype), view.edge_index.to(device)
    tried = check_model(model, x, edge_index, classes, grows=False)
    if tried.logits.size(1) != classes:
        raise ConfigError(
            f"model: {type(model).__name__} tells {tried.logits.size(1)} classes apart, and the "
            f"labels {classes}; build it with {classes}"
        )
    return tried
