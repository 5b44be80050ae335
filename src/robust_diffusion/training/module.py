"""LightningModule for the training of any model, and the interface for adversarial training."""

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Protocol, runtime_checkable

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torchmetrics.functional.classification import multiclass_accuracy

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import TrainingError
from robust_diffusion.models.modules import dtype_of
from robust_diffusion.models.raw_features import RawFeatures
from robust_diffusion.models.stack import takes_features
from robust_diffusion.models.victim import Victim
from robust_diffusion.operators import AnyFeatures, sparse_features
from robust_diffusion.system.tensor_hashes import ByTensor

_Attacker = Callable[[Data], Data]
"""Attack the train view, or a batch of it, at each call; the clean nodes come first."""


@runtime_checkable
class Adversary(Protocol):
    """Adversarial training: an attack on the train graph in every step.

    The training loss is (1 - s) clean + s attacked, with s the `attacked_share`. The attacker only
    receives the train view, so that it never sees a validation or test node.

    Early stopping and the best epoch use clean validation nodes. Attacked validation nodes would
    favour the epoch at which the attacker lags most behind the model.

    Attributes:
        attacked_share: s, in (0, 1].
    """

    attacked_share: float

    def against(self, model: nn.Module) -> _Attacker:
        """Create an attacker of a model, seeded from torch's global generator."""


class NodeClassification(pl.LightningModule):
    """Cross-entropy training of a node classifier, and its accuracy on each test graph.

    The model maps (x, edge_index) to logits; if it normalises by degree, it also receives `degree`.
    A checkpoint holds the weights and all arguments except the model, which has to be passed to
    `load_from_checkpoint(path, model=model)`.

    Args:
        model: Any model.
        num_classes: Number of its logits.
        learning_rate: Adam's learning rate.
        weight_decay: Adam's weight decay.
        adversary: Adversarial training; `None` for none.
        key: Configuration key of the training, for messages.
        model_config: Configuration of the model, saved in checkpoints; `None` for none.

    Examples:
        >>> from robust_diffusion.data import GraphDataModule
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.training import NodeClassification
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> datamodule = GraphDataModule.from_data(data)
        >>> module = NodeClassification(MLP(8, 8, out_channels=7), num_classes=7)
        >>> module(datamodule.view("test")).shape
        torch.Size([100, 7])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        adversary: Adversary | None = None,
        key: str = "training",
        model_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        # Not passed to the logger, which receives the whole configuration elsewhere.
        self.save_hyperparameters(ignore=["model", "adversary"], logger=False)
        self.model = model
        self.num_classes = num_classes
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.key = key
        self.adversary = adversary
        self._attacker: _Attacker | None = None
        self._prepared: dict[int, AnyFeatures] = {}
        # Loss and accuracy by stage, if they were computed ahead; see `RecordedEpochs`.
        self.recorded_scores: Mapping[str, tuple[Tensor, ...]] | None = None
        self._on_copies: tuple[nn.Module, ...] = ()  # in a tuple, which registers no module

    @classmethod
    def load_from_checkpoint(cls, *args: Any, **kwargs: Any) -> "NodeClassification":
        """Load as Lightning does, but execute no code in it unless `weights_only` is false."""
        return super().load_from_checkpoint(*args, **{"weights_only": True} | kwargs)

    def on_fit_start(self) -> None:
        """Pass the scale of the features to the model, and prepare the features of both views.

        A model that writes into its inputs is called on copies from here on.
        """
        datamodule = getattr(self.trainer, "datamodule", None)
        if isinstance(datamodule, GraphDataModule):
            view = self._cast(datamodule.view("val"))
            given = view["x"].to(self.device), view["edge_index"].to(self.device)
            called = Victim(self.model, *given).on_copies()
            self._on_copies = () if called is self.model else (called,)
        if self.adversary is not None:
            self._attacker = self.adversary.against(self._called)
        if not isinstance(datamodule, GraphDataModule):
            return
        for part in self.model.modules():
            if isinstance(part, RawFeatures):
                part.follow(datamodule.feature_scale)
        if self.trainer.strategy.root_device.type == "cpu" and takes_features(self.model):
            views = [self._cast(datamodule.view(part)).x for part in ("train", "val")]
            self._prepared = {id(x): sparse_features(x) for x in views if x is not None}

    @property
    def _called(self) -> nn.Module:
        """The model, or one that calls it on copies of what it would write into."""
        return (*self._on_copies, self.model)[0]

    def on_fit_end(self) -> None:
        """Drop the prepared features and the attacker."""
        self._prepared, self._attacker = {}, None

    def forward(self, data: Data) -> Tensor:
        """Return the logits of every node of a view, n x C."""
        data = self._cast(data)
        x = self._prepared.get(id(data.x), data.x)
        options = {}
        if "degree" in data and getattr(self._called, "normalizes_by_degree", False):
            options["degree"] = data.degree
        logits: Tensor = self._called(x, data.edge_index, **options)
        return logits

    def training_step(self, batch: Data, batch_idx: int) -> Tensor:
        """Compute the loss on the scored nodes of the train view."""
        loss, accuracy = (self.recorded_scores or {}).get("train") or self.score(batch)
        value = self._log("train", loss, accuracy)
        if not math.isfinite(value):
            raise TrainingError(
                f"loss is {value} at epoch {self.current_epoch}; lower "
                f"{self.key}.learning_rate={self.learning_rate} or check the features"
            )
        if self.adversary is None or self._attacker is None:
            return loss
        attacked_loss, attacked_accuracy = self.score(self._attacker(self._cast(batch)))
        self._log("attacked", attacked_loss, attacked_accuracy)
        return loss + self.adversary.attacked_share * (attacked_loss - loss)

    def validation_step(self, batch: Data, batch_idx: int) -> None:
        """Log loss and accuracy on the validation nodes."""
        loss, accuracy = (self.recorded_scores or {}).get("val") or self.validation_score(batch)
        self._log("val", loss, accuracy)

    def test_step(self, batch: Data, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Log loss and accuracy on the target nodes."""
        self._log("test", *self.score(batch))

    def predict_step(self, batch: Data, batch_idx: int) -> Tensor:
        """Return the logits of every node, n x C."""
        return self(batch)  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Create Adam over all parameters, which a CUDA graph can update on a GPU."""
        parameters = [*self.parameters()]
        capturable = getattr(self._trainer, "precision", "32-true") == "32-true" and all(
            parameter.is_cuda and parameter.is_floating_point() for parameter in parameters
        )
        return torch.optim.Adam(
            parameters,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            fused=capturable or None,
            capturable=capturable,
        )

    def _cast(self, data: Data) -> Data:
        """Cast features and degrees of a view to the type of the weights, which may be double."""
        x = data.x
        assert x is not None
        dtype = dtype_of(self.model, x.dtype)
        if x.dtype != dtype:
            data = copy(data)
            # Cached per tensor, since prepared features are looked up by its identity.
            data.x = _CAST.kept(x, dtype, lambda: x.to(dtype))
            if "degree" in data:
                data.degree = data.degree.to(dtype)
        return data

    def score(self, data: Data) -> tuple[Tensor, Tensor]:
        """Compute loss and accuracy of the scored nodes."""
        nodes = _SCORED.kept(data.mask, (), lambda: data.mask.nonzero().squeeze(1))
        logits, labels = self(data)[nodes], data.y[nodes]
        loss = F.cross_entropy(logits, labels)
        accuracy = multiclass_accuracy(
            logits.detach(), labels, num_classes=self.num_classes, average="micro"
        )
        return loss, accuracy

    def validation_score(self, data: Data) -> tuple[Tensor, Tensor]:
        """Compute the same, with an accuracy of NaN if the loss is: it must not become the best."""
        loss, accuracy = self.score(data)
        return loss, accuracy.masked_fill(loss.isnan(), math.nan)

    def _log(self, stage: str, loss: Tensor, accuracy: Tensor) -> float:
        """Log both from the host, in one host sync on a GPU, and return the loss.

        Lightning, its loggers and early stopping would otherwise read each from the GPU again.
        """
        loss, accuracy = torch.stack([loss.detach(), accuracy.to(loss.dtype)]).cpu()
        values = {f"{stage}_loss": loss, f"{stage}_accuracy": accuracy}
        self.log_dict(values, on_step=False, on_epoch=True, batch_size=1)
        return loss.item()


_CAST = ByTensor()

_SCORED = ByTensor()
"""Cached node indices of masks, since computing them is a host sync on a GPU."""
