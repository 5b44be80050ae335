"""Models to evaluate: built from a configuration, loaded from a file, or trained and cached."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.files import read_torch
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.threat import TrainedModel
from robust_diffusion.models.edge_values import with_edge_values
from robust_diffusion.operators import set_backend
from robust_diffusion.records.content import by_content, computed_by, leaves_of
from robust_diffusion.records.identity import settings_of_config
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.arithmetic import set_threads, set_up_arithmetic
from robust_diffusion.system.artifact import Artifact, cache_key_of
from robust_diffusion.system.tensor_hashes import state_hash
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """Instructions to build and train a model, and its key in the cache."""

    build: Callable[..., nn.Module]  # from the numbers of features and classes
    fit: Fit
    cache_key: Mapping[str, Any]
    callbacks: Sequence[pl.Callback] = ()  # further Lightning callbacks for the training


@dataclass(frozen=True)
class ModelTraining:
    """Training of models on one graph with one seed; cached models are reused."""

    datamodule: GraphDataModule
    store: ArtifactStore
    seed: int
    directory: Path  # for checkpoints, in one folder per model

    def named(self, name: str) -> "ModelTraining":
        """Return a copy whose seed is derived from this seed and a name."""
        digest = hashlib.sha256(f"{name} {self.seed}".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:4], "big"))

    def untrained(self, build: Callable[..., nn.Module]) -> nn.Module:
        """Build an untrained model for the graph's features and classes, from the seed."""
        pl.seed_everything(self.seed, workers=True, verbose=False)
        return with_edge_values(build_sized(build, self.datamodule), self.datamodule)

    def __call__(
        self,
        kind: str,
        recipe: Recipe,
        *,
        description: str,
        logger: Logger | Sequence[Logger] | bool = False,
    ) -> TrainedModel:
        """Train a model, or load it from the cache.

        The random state is reset from the seed, so the result does not depend on earlier training
        or cache hits. A cached model logs no training curves. `kind` names the folder of
        checkpoints.
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
            keys = ("epochs", "best_epoch", "seconds", "val_accuracy")
            numbers = {key: getattr(fitted, key) for key in keys}
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
        # Lightning logs float32; rounding to a number of validation nodes recovers the exact share.
        nodes = int(self.datamodule.view("val").mask.sum())
        numbers["val_accuracy"] = round(numbers["val_accuracy"] * nodes) / nodes
        return TrainedModel(
            model=model.eval(),
            **numbers,
            state=state_hash(model.state_dict()),
            path=self.store.path("model", key),
            reused=reused,
        )


def build_sized(build: Callable[..., nn.Module], datamodule: GraphDataModule) -> nn.Module:
    """Build an untrained model for the graph's features and classes."""
    sizes = {"in_channels": datamodule.num_features, "out_channels": datamodule.num_classes}
    try:
        return build(**sizes)
    except TypeError as error:
        args = ", ".join(f"{key}={size}" for key, size in sizes.items())
        raise ConfigError(
            f"model: cannot be built with {args} ({error}); check the classes that its options name"
        ) from error


def victim_key(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a hashed configuration that identifies a run's victim in the cache."""
    # A callback may change the training, for example by averaging weights.
    further = {"callbacks": config["callbacks"]} if config.get("callbacks") else {}
    return {"model": config["model"], "fit": config["training"], **further}


_KINDS = (torch.is_floating_point, torch.is_complex)
"""Properties in which a loaded weight must agree with that of the model."""

EXTRA_STATE = "_extra_state"
"""Suffix of names in a `state_dict` whose values come from `get_extra_state`, and need not be
tensors."""


def set_up_process(threads: int | str, backend: Any = None) -> None:
    """Set threads (unless they depend on the graph), arithmetic, and a backend if one is named."""
    set_threads(threads)
    set_up_arithmetic()
    if backend is not None:
        set_backend(backend)


def build_model(config: Mapping[str, Any], in_channels: int, out_channels: int) -> nn.Module:
    """Build an untrained model from a configuration, whose `_target_` may be any class."""
    plain: Any = (
        OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    )
    arguments = {"in_channels": in_channels, "out_channels": out_channels, **plain}
    try:
        model: nn.Module = instantiate({**arguments, "_partial_": True})()
    except ConfigError:
        raise
    except (InstantiationException, AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        if isinstance(error.__cause__, ImportError):
            raise ConfigError(
                f"model={config.get('_target_')}: cannot be imported ({reason}); check the name, "
                "and that Python finds its module"
            ) from error
        keys = [key for key in arguments if not key.startswith("_")]
        raise ConfigError(
            f"model={config.get('_target_')}: cannot be built with {', '.join(keys)} ({reason}); "
            "give its arguments as model.KEY=VALUE"
        ) from error
    return model


def load_checkpoint(
    config: Mapping[str, Any], datamodule: GraphDataModule, path: str | Path
) -> nn.Module:
    """Build a model from a configuration, and load weights that were trained with it."""
    model = build_model(config, datamodule.num_features, datamodule.num_classes)
    where = f"checkpoint={path}"
    weights = _read(Path(path), where)
    recorded = _recorded_config(Path(path), weights)
    if recorded is not None:
        _compare_configs(recorded, config, where)
    load_weights(model, weights, where=where)
    if recorded is None:
        log.warning("%s: holds no configuration to compare the options of model with", where)
    return model


def _compare_configs(recorded: Mapping[str, Any], config: Mapping[str, Any], where: str) -> None:
    """Raise a `ConfigError` if a configuration differs from that of the training."""
    trained, current = (
        {key: value for key, value, _ in leaves_of(_identity(options))}
        for options in (recorded, config)
    )
    for key in sorted(trained.keys() | current.keys()):
        if trained.get(key) != current.get(key):
            raise ConfigError(
                f"{where}: expected {key}={trained.get(key)}, with which it was trained, got "
                f"{current.get(key)}; give the options of the training"
            )


def _recorded_config(path: Path, content: Any) -> Mapping[str, Any] | None:
    """Return the configuration of the model whose weights are in a file, if it is known."""
    if path.suffix == ".safetensors":
        # Imported late, since the zoo imports this module.
        from robust_diffusion.evaluation.zoo import Zoo

        config = cache_key_of(path).get("model")
        with suppress(DataError):
            configs = {entry.file: entry.config for entry in Zoo.open(path.parent).entries}
            config = configs.get(path.name, config)
    else:
        options = content.get("hyper_parameters") if isinstance(content, Mapping) else None
        config = options.get("model_config") if isinstance(options, Mapping) else None
    return config if isinstance(config, Mapping) and "_target_" in config else None


def _identity(config: Any) -> dict[str, Any]:
    """Return the part of a model's configuration that can change a result."""
    plain = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    return by_content({"model": settings_of_config({"model": plain})["model"]})


def load_weights(model: nn.Module, weights: Any, *, where: Any) -> None:
    """Load weights, or a file of them, into a model; Lightning checkpoints name them `model.*`."""
    state: Any = _read(weights, where) if isinstance(weights, Path) else weights
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = {str(k).removeprefix("model."): v for k, v in state["state_dict"].items()}
    if not isinstance(state, Mapping) or not all(
        isinstance(value, Tensor) or str(name).endswith(EXTRA_STATE)
        for name, value in state.items()
    ):
        raise DataError(f"{where}: holds no state_dict; save model.state_dict()")
    model_state = model.state_dict()
    for name, tensor in state.items():
        expected = model_state.get(name)
        if (
            isinstance(tensor, Tensor)
            and isinstance(expected, Tensor)
            and any(is_kind(tensor) != is_kind(expected) for is_kind in _KINDS)
        ):
            raise DataError(
                f"{where}: {name} is of type {tensor.dtype}, the model's of {expected.dtype}; "
                "save it as such"
            )
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = " ".join(str(error).split()).partition(": ")[2][:200]
        remedy = "name the class and the arguments of its training"
        raise DataError(
            f"{where}: does not fit the model, a {type(model).__name__} ({reason}); {remedy}"
        ) from error


def _read(path: Path, where: Any) -> Any:
    try:
        return load_file(path) if path.suffix == ".safetensors" else read_torch(path)
    except DataError as error:
        raise DataError(f"{where}: {str(error).removeprefix(f'{path}: ')}") from error
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{where}: cannot be read ({reason}); give a state_dict as .safetensors, .pt or .ckpt"
        ) from error


def train_composed(
    cfg: DictConfig,
    datamodule: GraphDataModule,
    *,
    description: str,
    build: Callable[..., nn.Module] | None = None,
    cache_key: Mapping[str, Any] | None = None,
) -> TrainedModel:
    """Train the victim of a composed configuration, or load it from the cache."""
    parts = ("model", "training", "callbacks")
    config = {key: OmegaConf.to_container(cfg[key], resolve=True) for key in parts}
    artifacts = ArtifactStore(cfg.paths.store, refresh=cfg.force)
    with TemporaryDirectory() as folder:
        return ModelTraining(datamodule, artifacts, cfg.seed, Path(folder))(
            "victim",
            Recipe(
                build or instantiate(cfg.model),
                instantiate(cfg.training),
                victim_key(settings_of_config(config)) | dict(cache_key or {}),
                [instantiate(options) for options in cfg.callbacks.values()],
            ),
            description=description,
        )
