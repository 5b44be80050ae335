"""Training of a model by GRB's protocol, with Lightning, on one graph in memory."""

import io
import logging
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from annotated_types import Ge, Gt, Le
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping
from pytorch_lightning.loggers import Logger
from torch import nn

from robust_diffusion.checks import Count, NonNegative, check_choice, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.system.files import check_folder, write_whole
from robust_diffusion.system.progress import Progress
from robust_diffusion.training.cuda_graphs import RecordedEpochs
from robust_diffusion.training.module import Adversary, NodeClassification

log = logging.getLogger(__name__)

PRECISIONS = ("32", "32-true", "bf16-mixed", "16-mixed")
"""Precisions of training; graphs, attacks and tests always use single precision."""

LARGEST_FACTOR = 1e37
"""Largest learning rate or weight decay; ten times it, Adam's first step, is finite in float32."""

SET_BY_FIT = {"max_epochs", "logger", "callbacks", "enable_progress_bar", "enable_checkpointing"}
"""Options of Lightning's trainer that a fit sets itself."""

UNREPORTED = {"deterministic", "enable_model_summary", "log_every_n_steps", "num_sanity_val_steps"}
"""Options that every `conf/trainer/` sets; error messages leave them out."""

LIGHTNING = str(Path(pl.__file__).parent)
"""Folder of Lightning's own code."""

NOT_FOR_ONE_GRAPH = (
    # One graph is one batch: worker processes would only copy it.
    "does not have many workers",
    # Lightning calls a torch function that newer versions of torch have renamed.
    "isinstance.treespec, LeafSpec.",
    # An epoch is recorded on another stream, for which autograd waits.
    "AccumulateGrad node's stream does not match",
)

LOGGERS = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]


@dataclass(frozen=True)
class FitResult:
    """Result of a fit.

    Examples:
        >>> from robust_diffusion import fit
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = MLP(8, 8, out_channels=7)
        >>> result = fit(model, data, max_epochs=2, accelerator="cpu", progress=False)
        >>> result.epochs, result.checkpoint
        (2, None)
    """

    module: NodeClassification  # with the best weights, in eval mode on the CPU
    epochs: int  # epochs trained
    seconds: float  # wall time of the training
    val_accuracy: float  # best validation accuracy, in 0..1
    checkpoint: Path | None  # file of the best weights; `None` without a folder for it
    best_epoch: int  # epoch of the best weights, from 1


@contextmanager
def _lightning_errors(shown: str) -> Iterator[None]:
    """Convert Lightning's errors of invalid options, and name these."""
    try:
        yield
    except (MisconfigurationException, ValueError, ZeroDivisionError) as error:
        # Lightning checks some options only during training, or divides by them.
        of_options = isinstance(error, MisconfigurationException)
        if not of_options and LIGHTNING not in extract_tb(error.__traceback__)[-1].filename:
            raise
        reason = " ".join(str(error).split()).rstrip(".!")
        where = shown or "trainer"
        raise ConfigError(f"{where}: {reason}; check the options and callbacks") from error


class BestWeights(pl.Callback):
    """The weights of the epoch with the best validation accuracy, kept in memory."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.accuracy = math.nan
        self.epoch = 0  # from 1; 0 before the first validation

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Copy the weights if no earlier epoch was as accurate."""
        if trainer.sanity_checking:
            return
        accuracy = trainer.callback_metrics["val_accuracy"].item()
        if accuracy > self.accuracy or math.isnan(self.accuracy):
            self.accuracy, self.epoch = accuracy, trainer.current_epoch + 1
            if getattr(pl_module, "recorded_scores", None):  # the recorded epoch copies them
                return
            with torch.inference_mode(mode=False):  # the copies may be trained further
                self.state = deepcopy(pl_module.state_dict())


def _write_checkpoint(
    module: NodeClassification, epoch: int, folder: Path, description: str
) -> Path:
    """Write a checkpoint that Lightning loads, to a name that no other fit has taken."""
    checkpoint = {
        "state_dict": module.state_dict(),
        "hyper_parameters": dict(module.hparams),
        "epoch": epoch - 1,
        "pytorch-lightning_version": version("pytorch-lightning"),
    }
    torch.save(checkpoint, file := io.BytesIO())
    stem = "-".join([*re.findall(r"[\w.+-]+", description), "best"])
    for number in count():
        path = folder / (f"{stem}-v{number}.ckpt" if number else f"{stem}.ckpt")
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    try:
        return write_whole(path, file.getvalue(), option="directory")
    except ConfigError:
        path.unlink(missing_ok=True)
        raise


@validated("{key}")
class Fit:
    """GRB's protocol: Adam on the cross-entropy, with early stopping on the validation loss.

    The result has the weights of the epoch with the best validation accuracy.

    Reference: "Implementation Details", arXiv:2209.07754; GRB's trainer.

    Args:
        trainer: Function that builds a Lightning trainer from max_epochs, logger and callbacks.
        max_epochs: Most epochs, at least 1.
        patience: Epochs without a lower validation loss after which training stops, at least 1.
        min_delta: Smallest decrease of the validation loss that counts as an improvement.
        learning_rate: Adam's learning rate, above 0, at most 1e37.
        weight_decay: Adam's weight decay, at least 0, at most 1e37.
        progress_bar: Show a bar on a terminal.
        adversary: Adversarial training, such as `InjectionAdversary`; `None`, or an empty
            configuration, for none.
        cuda_graphs: Record an epoch as one CUDA graph on a GPU, if the results are the same; see
            `RecordedEpochs`.
        key: Configuration key of this fit, for messages.

    Raises:
        ConfigError: A number is out of range, or `adversary` is not an adversary.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion.data import GraphDataModule
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.training import Fit
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> trainer = partial(pl.Trainer, accelerator="cpu", enable_model_summary=False)
        >>> train = Fit(trainer, max_epochs=2, progress_bar=False)
        >>> train(MLP(8, 8, out_channels=7), GraphDataModule.from_data(data)).epochs
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
        cuda_graphs: bool = True,
        key: str = "training",
    ) -> None:
        self._trainer = trainer
        self.max_epochs = max_epochs
        self.patience = patience
        self.min_delta = min_delta
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.progress_bar = progress_bar
        self.cuda_graphs = cuda_graphs
        if adversary and not isinstance(adversary, Adversary):
            raise ConfigError(f"{key}.adversary={adversary}: is none; use adversary=injection")
        self.adversary = adversary if isinstance(adversary, Adversary) else None
        self.key = key

    def __call__(
        self,
        model: nn.Module,
        datamodule: GraphDataModule,
        *,
        directory: Path | None = None,
        description: str = "",
        logger: Logger | Sequence[Logger] | bool = False,
        callbacks: Sequence[pl.Callback] = (),
        model_config: Mapping[str, Any] | None = None,
    ) -> FitResult:
        """Train `model` on the graph of `datamodule`.

        Args:
            model: Model, trained in place; it ends with its best weights.
            datamodule: Datamodule with the train and val views.
            directory: Folder for one checkpoint of the best weights, written when the training
                ends, also by an error or Ctrl-C; other files in it stay. `None` for no checkpoint.
            description: Name of the training in progress bar and log.
            logger: Lightning logger for the loss and accuracy curves.
            callbacks: Further Lightning callbacks.
            model_config: Configuration of the model, saved in the checkpoint; `None` for none.

        Raises:
            ConfigError: The trainer's device is missing, an option is invalid, or the folder
                cannot be written.
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
        module.train()  # Lightning does not change the mode of a model
        if directory is not None:
            directory = directory.expanduser().resolve()
            check_folder(directory, option="directory")
        path, best = None, BestWeights()
        stopping = EarlyStopping(
            "val_loss", patience=self.patience, min_delta=self.min_delta, check_finite=False
        )
        bar = [EpochProgressBar(description)] if self.progress_bar else []
        recorded = RecordedEpochs(best, stopping, bar)
        callbacks = [best, stopping, *bar, *[recorded] * self.cuda_graphs, *callbacks]
        with quiet_lightning():
            trainer = self._build_trainer(
                max_epochs=self.max_epochs, logger=logger, callbacks=callbacks
            )
            start = time.perf_counter()
            try:
                with _lightning_errors(self._shown):
                    trainer.fit(module, datamodule)
                seconds = time.perf_counter() - start
            finally:  # an interrupted fit keeps its best weights, too
                recorded.end(module)
                if best.epoch:
                    module.load_state_dict(best.state)
                    if directory is not None:
                        path = _write_checkpoint(module, best.epoch, directory, description)
        self._check_validated(best)
        message = "%s: %d epochs (best %d) in %.1f s, best validation accuracy %.2f %%"
        epochs = trainer.current_epoch
        log.info(message, description, epochs, best.epoch, seconds, 100 * best.accuracy)
        return FitResult(module.eval(), epochs, seconds, best.accuracy, path, best.epoch)

    def _check_validated(self, best: BestWeights) -> None:
        if not best.epoch:
            raise TrainingError(
                "no epoch was trained and validated, so there is no model; the options of trainer "
                "must let at least one be"
            )
        if math.isnan(best.accuracy):
            raise TrainingError(
                "the loss of the validation nodes is NaN after every epoch; lower "
                f"{self.key}.learning_rate={self.learning_rate} or check the features"
            )

    def trainer(self) -> pl.Trainer:
        """Build a trainer for tests, on the device of the training."""
        with quiet_lightning():
            return self._build_trainer(logger=False, callbacks=[])

    @property
    def _keywords(self) -> Mapping[str, Any]:
        """Options of the trainer that the configuration or the caller has set."""
        return getattr(self._trainer, "keywords", {})

    @property
    def _shown(self) -> str:
        options = self._keywords.items()
        return ", ".join(f"trainer.{k}={v}" for k, v in options if k not in UNREPORTED)

    def _build_trainer(self, **arguments: Any) -> pl.Trainer:
        # Lightning's progress bar counts batches, but an epoch has only one.
        arguments["enable_progress_bar"] = False
        own = any(isinstance(callback, Checkpoint) for callback in arguments["callbacks"])
        arguments["enable_checkpointing"] = own  # by `BestWeights`, and those of the user
        keywords = self._keywords
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
            reason = " ".join(str(error).split()).rstrip(".!")
            raise ConfigError(f"{self._shown}: {reason}; trainer=cpu runs anywhere") from error
        if trainer.world_size > 1:
            raise ConfigError(
                f"trainer.devices, trainer.num_nodes: expected one device, got "
                f"{trainer.world_size}; use trainer.devices=1, and a launcher such as "
                "hydra/launcher=cores for several runs on several devices"
            )
        if not trainer.limit_train_batches or not trainer.limit_val_batches:
            raise ConfigError(
                "trainer.limit_train_batches, trainer.limit_val_batches: every epoch trains and "
                "validates on the one graph; drop them"
            )
        return trainer


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide advice and banners within the context, and pass Ctrl-C and SIGTERM to the caller."""
    levels = [logger.level for logger in LOGGERS]
    try:
        with warnings.catch_warnings():
            for logger in LOGGERS:
                logger.setLevel(max(logger.level, logging.WARNING))
            for message in NOT_FOR_ONE_GRAPH:
                warnings.filterwarnings("ignore", message=f".*{message}")
            yield
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # Lightning turns it into an exit
            raise type(stop.__context__) from stop
        raise
    finally:
        for logger, level in zip(LOGGERS, levels, strict=True):
            logger.setLevel(level)


class EpochProgressBar(pl.Callback):
    """Progress of a training in epochs, with its accuracies, as a bar or a line per minute.

    The time left assumes that the validation loss does not improve, so that training stops early.
    """

    def __init__(self, description: str = "") -> None:
        self._description = description
        self._progress: Progress | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar."""
        self._progress = Progress(self._description, unit="epochs")

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
        """Close the bar, so that the error starts on a new line."""
        self.on_train_end(trainer, pl_module)
