"""A model to evaluate: built of a configuration, with weights of a file, or trained."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.files import read_torch
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.threat import TrainedModel
from robust_diffusion.evaluation.trained import ModelTraining, Recipe, victim_key
from robust_diffusion.operators import set_backend
from robust_diffusion.records.content import by_content
from robust_diffusion.records.identity import settings_of_config
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.arithmetic import set_up_arithmetic
from robust_diffusion.system.artifact import cache_key_of
from robust_diffusion.system.threads import set_threads

log = logging.getLogger(__name__)

EXTRA_STATE = "_extra_state"
"""End of the names in a `state_dict` of what `get_extra_state` returns, which may be no tensor."""


def set_up_process(threads: int | str, backend: Any = None) -> None:
    """Set threads, as far as they depend on no graph, arithmetic, and a backend if it is named."""
    set_threads(threads)
    set_up_arithmetic()
    if backend is not None:
        set_backend(backend)


def build_model(config: Mapping[str, Any], in_channels: int, out_channels: int) -> nn.Module:
    """An untrained model of a configuration, whose `_target_` may be anyone's class.

    Raises:
        ConfigError: It cannot be built so.
    """
    plain: Any = (
        OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    )
    given = {"in_channels": in_channels, "out_channels": out_channels, **plain}
    try:
        model: nn.Module = instantiate({**given, "_partial_": True})()
    except ConfigError:
        raise
    except (InstantiationException, AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        if isinstance(error.__cause__, ImportError):
            raise ConfigError(
                f"model={config.get('_target_')}: cannot be imported ({reason}); check the name, "
                "and that Python finds its module"
            ) from error
        keys = [key for key in given if not key.startswith("_")]
        raise ConfigError(
            f"model={config.get('_target_')}: cannot be built with {', '.join(keys)} ({reason}); "
            "give its arguments as model.KEY=VALUE"
        ) from error
    return model


def load_checkpoint(
    config: Mapping[str, Any], datamodule: GraphDataModule, path: str | Path
) -> nn.Module:
    """Build a model of a configuration and load the weights of a file that was trained with it.

    Raises:
        ConfigError: The model cannot be built, or the file names another configuration.
        DataError: See `load_weights`.
    """
    model = build_model(config, datamodule.num_features, datamodule.num_classes)
    where = f"checkpoint={path}"
    load_weights(model, Path(path), where=where)
    if (recorded := _recorded_config(Path(path))) is None:
        log.warning("%s: holds no configuration to compare the options of model with", where)
        return model
    trained, given = (dict(_leaves(_identity(of))) for of in (recorded, config))
    for key in sorted(trained.keys() | given.keys()):
        if trained.get(key) != given.get(key):
            raise ConfigError(
                f"{where}: expected {key}={trained.get(key)}, with which it was trained, got "
                f"{given.get(key)}; give the options of the training"
            )
    return model


def _recorded_config(path: Path) -> Mapping[str, Any] | None:
    """The configuration of the model whose weights a readable file has, if it is known."""
    if path.suffix == ".safetensors":
        # Late, since the zoo is loaded by this module.
        from robust_diffusion.evaluation.zoo import Zoo

        found = cache_key_of(path).get("model")
        with suppress(DataError):
            configs = {entry.file: entry.config for entry in Zoo.open(path.parent).entries}
            found = configs.get(path.name, found)
    else:
        found = read_torch(path).get("hyper_parameters", {}).get("model_config")
    return found if isinstance(found, Mapping) and "_target_" in found else None


def _identity(config: Any) -> dict[str, Any]:
    """The part of a model's configuration that changes a result."""
    plain = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    return by_content({"model": settings_of_config({"model": plain})["model"]})


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Values of a nested configuration by their paths."""
    if not isinstance(node, Mapping):
        yield path, node
        return
    for key, child in node.items():
        yield from _leaves(child, f"{path}.{key}" if path else str(key))


def load_weights(model: nn.Module, weights: Path | Mapping[str, Any], *, where: Any) -> None:
    """Put weights into a model; those of a Lightning checkpoint are named `model.*`.

    Raises:
        DataError: A file that cannot be read, or not without running code, or weights that are not
            the model's.
    """
    state: Any = _read(weights, where) if isinstance(weights, Path) else weights
    if isinstance(state, Mapping) and "state_dict" in state:
        state = {k.removeprefix("model."): v for k, v in state["state_dict"].items()}
    if not isinstance(state, Mapping) or not all(
        isinstance(value, Tensor) or str(name).endswith(EXTRA_STATE)
        for name, value in state.items()
    ):
        raise DataError(f"{where}: holds no state_dict; save model.state_dict()")
    own = model.state_dict()
    for name, tensor in state.items():
        expected = own.get(name)
        if not isinstance(tensor, Tensor) or not isinstance(expected, Tensor):
            continue
        if _kind(tensor) != _kind(expected):
            raise DataError(
                f"{where}: {name} is of type {tensor.dtype}, the model's of {expected.dtype}; "
                "save it as such"
            )
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{where}: does not fit the model ({reason[:300]})") from error


def _read(path: Path, where: Any) -> Any:
    try:
        return load_file(path) if path.suffix == ".safetensors" else read_torch(path)
    except (OSError, SafetensorError, DataError) as error:
        reason = str(error).splitlines()[0].removeprefix(f"{path}: ")
        raise DataError(
            f"{where}: cannot be read ({reason}); give a state_dict as .safetensors, .pt or .ckpt"
        ) from error


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex()


def train_composed(
    cfg: DictConfig,
    datamodule: GraphDataModule,
    *,
    description: str,
    build: Callable[..., nn.Module] | None = None,
    cache_key: Mapping[str, Any] | None = None,
    store: str | Path | None = None,
) -> TrainedModel:
    """The victim that a run of a composed configuration trains, from the store if it is there."""
    parts = ("model", "training", "callbacks")
    config = {key: OmegaConf.to_container(cfg[key], resolve=True) for key in parts}
    kept = ArtifactStore(cfg.paths.store if store is None else store, refresh=cfg.force)
    with TemporaryDirectory() as folder:
        return ModelTraining(datamodule, kept, cfg.seed, Path(folder))(
            "victim",
            Recipe(
                build or instantiate(cfg.model),
                instantiate(cfg.training),
                victim_key(settings_of_config(config)) | dict(cache_key or {}),
                [instantiate(options) for options in cfg.callbacks.values()],
            ),
            description=description,
        )
