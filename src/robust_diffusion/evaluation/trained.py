"""Trained models: each is trained once and kept in the store."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from torch import Tensor, nn

from robust_diffusion.attacks.base import clean_graph
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.edge_order import sort_inputs, sorted_row
from robust_diffusion.evaluation.threat import TrainedModel
from robust_diffusion.models.checked import has_own_layers
from robust_diffusion.models.edge_values import with_edge_values
from robust_diffusion.records.content import by_content, computed_by
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from robust_diffusion.system.tensor_hashes import state_hash
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)

NUMBERS = ("epochs", "best_epoch", "seconds", "val_accuracy")


@dataclass(frozen=True)
class Recipe:
    """What builds a model and trains it, and the configuration of both, by which it is cached."""

    build: Callable[..., nn.Module]  # from the numbers of features and classes
    fit: Fit
    cache_key: Mapping[str, Any]
    callbacks: Sequence[pl.Callback] = ()  # of Lightning, which the training calls as well


@dataclass(frozen=True)
class ModelTraining:
    """Trained models of one graph and one seed, each from the store if it is there."""

    datamodule: GraphDataModule
    store: ArtifactStore
    seed: int
    directory: Path  # of the checkpoints of what is trained now, a folder each

    def named(self, name: str) -> "ModelTraining":
        """The same with a random state of its own, derived from the seed and a name."""
        digest = hashlib.sha256(f"{name} {self.seed}".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:4], "big"))

    def untrained(self, build: Callable[..., nn.Module]) -> nn.Module:
        """A model as it is before its training, built for the graph's features and classes."""
        pl.seed_everything(self.seed, workers=True, verbose=False)
        model = build(
            in_channels=self.datamodule.num_features, out_channels=self.datamodule.num_classes
        )
        if not has_own_layers(model):
            sort_inputs(model, sorted_row(clean_graph(self.datamodule.graph)[1]))
        return with_edge_values(model, self.datamodule)

    def __call__(
        self,
        kind: str,
        recipe: Recipe,
        *,
        description: str,
        logger: Logger | Sequence[Logger] | bool = False,
    ) -> TrainedModel:
        """Train a model, unless the store has it.

        The random state is reset from the seed, so that what was trained or found before makes
        no difference. A model from the store leaves no curves with the logger. `kind` names the
        folder of checkpoints.
        """

        def train() -> Artifact:
            fitted = recipe.fit(
                self.untrained(recipe.build),
                self.datamodule,
                directory=self.directory / kind,
                description=description,
                logger=logger,
                callbacks=recipe.callbacks,
                model_config=recipe.cache_key.get("model"),
            )
            numbers = {key: getattr(fitted, key) for key in NUMBERS}
            state = fitted.module.model.state_dict()
            tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            extra = {key: value for key, value in state.items() if key not in tensors}
            return Artifact(tensors, numbers | ({"extra_state": extra} if extra else {}))

        key = {
            "data": self.datamodule.fingerprint,
            "seed": self.seed,
            **computed_by(),
            **by_content(recipe.cache_key),
        }
        artifact, reused = self.store.get_or_compute("model", key, train)
        if reused:
            log.info("%s: reusing cached weights", description)
        model = self.untrained(recipe.build)
        numbers = dict(artifact.metadata)
        model.load_state_dict(artifact.tensors | numbers.pop("extra_state", {}))
        # Lightning logs float32, from which the share of the validation nodes can be recovered.
        nodes = int(self.datamodule.view("val").mask.sum())
        numbers["val_accuracy"] = round(numbers["val_accuracy"] * nodes) / nodes
        return TrainedModel(
            model=model.eval(),
            **numbers,
            state=state_hash(model.state_dict()),
            path=self.store.path("model", key),
            reused=reused,
        )


def victim_key(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a hashed configuration by which the store knows a run's victim."""
    # A callback may change the training, by averaging weights, say.
    further = {"callbacks": config["callbacks"]} if config.get("callbacks") else {}
    return {"model": config["model"], "fit": config["training"], **further}
