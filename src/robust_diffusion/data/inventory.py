"""Inventory of the datasets: files that are there, their hashes, statistics of their graphs."""

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import pandas as pd
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch_geometric.data import Data

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data.datamodule import GraphDataModule
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.sources import load_custom
from robust_diffusion.data.statistics import Statistics, statistics
from robust_diffusion.errors import ConfigError, DataError


def dataset_names() -> list[str]:
    """Every `dataset=` option with files or a generator; `custom` has neither until it is named."""
    return sorted({path.stem for path in (CONFIG_DIR / "dataset").glob("*.yaml")} - {"custom"})


def list_datasets(data_dir: str | Path) -> pd.DataFrame:
    """Per dataset, how many of its files are there; nothing is read beyond their hashes.

    Args:
        data_dir: The data directory.
    """
    rows = []
    for name in dataset_names():
        folder = _folder(name, data_dir)
        if folder is None:
            rows.append({"dataset": name, "state": "built in", "folder": "-"})
            continue
        states = [status.state for status in folder.status()]
        missing, damaged = states.count("missing"), states.count("damaged")
        state = "present" if not missing and not damaged else "missing"
        if 0 < missing < len(states):
            state = f"{missing} of {len(states)} files missing"
        if damaged:
            state = f"{damaged} of {len(states)} files damaged"
        rows.append({"dataset": name, "state": state, "folder": str(folder.folder)})
    return pd.DataFrame(rows)


def verify_files(data_dir: str | Path) -> pd.DataFrame:
    """Per file, its state, its hash, and what is wrong or where to get it.

    Args:
        data_dir: The data directory.
    """
    rows = []
    for name in dataset_names():
        folder = _folder(name, data_dir)
        rows += [
            {
                "dataset": name,
                "file": status.path.name,
                "state": status.state,
                "sha256": status.sha256 or "-",
                "detail": status.detail,
            }
            for status in (folder.status() if folder else [])
        ]
    return pd.DataFrame(rows)


def dataset_statistics(data_dir: str | Path) -> pd.DataFrame:
    """Per dataset that is there, its size and shape, or in `problem` why it is no graph.

    Args:
        data_dir: The data directory.
    """
    rows = []
    for name in dataset_names():
        folder = _folder(name, data_dir)
        if folder and any(status.state == "missing" for status in folder.status()):
            continue
        measured = measure(name, data_dir)
        if isinstance(measured, DataError):
            rows.append({"dataset": name, "problem": str(measured)})
            continue
        low, high = measured.feature_range
        rows.append(
            {"dataset": name}
            | asdict(measured)
            | {
                "feature_range": f"{low:.4f} .. {high:.4f}",
                "homophily": f"{measured.homophily:.3f}",
                "largest_class": f"{measured.largest_class:.3f}",
                "problem": "-",
            }
        )
    columns = ["dataset", *(field.name for field in fields(Statistics)), "problem"]
    # As objects, so that a gap does not turn the whole numbers beside it into decimals.
    return pd.DataFrame(rows, columns=columns, dtype=object).fillna("-")


def measure(name: str, data_dir: str | Path) -> Statistics | DataError:
    """Statistics of a dataset, or the error that says why it has none."""
    try:
        return statistics(open_dataset(name, data_dir))
    except DataError as error:
        return error


def open_dataset(name: str, data_dir: str | Path | None = None) -> GraphDataModule:
    """A dataset as cells have it: features normalised, split, test nodes of its difficulty.

    Args:
        name: Its `dataset=` option, such as cora.
        data_dir: The data directory; `None` for `ROBUST_DIFFUSION_DATA`, or else `data`.

    Returns:
        The datamodule; its files are read when it is first used, and nothing is downloaded.

    Raises:
        ConfigError: No dataset has that name.

    Examples:
        >>> from robust_diffusion import open_dataset
        >>> open_dataset("synthetic").name
        'synthetic'
    """
    check_choice("dataset", name, dataset_names())
    if data_dir is None:
        data_dir = os.environ.get("ROBUST_DIFFUSION_DATA") or "data"
    datamodule: GraphDataModule = instantiate(compose_dataset(name, data_dir).data)
    return datamodule


def load_dataset(name: str, data_dir: str | Path) -> Data:
    """A graph with raw features, by its `dataset=` option, or a user's own by its path.

    Args:
        name: The option, or a path that `load_custom` reads.
        data_dir: The data directory.

    Raises:
        ConfigError: Neither.
        DataError: Its files are missing or damaged; nothing is downloaded.
    """
    if name in dataset_names():
        source: Callable[[], Data] = instantiate(compose_dataset(name, data_dir).dataset.source)
        return source()
    if not Path(name).exists():
        raise ConfigError(f"{name}: no dataset; use a path, or one of {', '.join(dataset_names())}")
    return load_custom(name)


def _folder(name: str, data_dir: str | Path) -> DatasetFolder | None:
    source = compose_dataset(name, data_dir).dataset.source
    return instantiate(source.folder) if "folder" in source else None


def compose_dataset(name: str, data_dir: str | Path) -> DictConfig:
    """The configuration with a dataset; nothing is downloaded."""
    cfg = deepcopy(_composed(name))
    # Not as an override, whose grammar gives some characters of a path a meaning.
    cfg.paths.data_dir = str(data_dir)
    return cfg


@cache
def _composed(name: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("config", [f"dataset={name}", "download=false"])
