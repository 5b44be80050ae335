"""Graphs of the available datasets, and their statistics."""

import os
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import pandas as pd
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch_geometric.utils import homophily

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data.datamodule import GraphDataModule
from robust_diffusion.data.folders import dataset_names, folders
from robust_diffusion.errors import DataError


@dataclass(frozen=True)
class Statistics:
    """Size and shape of a graph."""

    nodes: int  # number of nodes
    edges: int  # number of undirected edges
    features: int  # number of features
    classes: int  # number of classes
    feature_range: tuple[float, float]  # smallest and largest normalised feature
    homophily: float  # share of the edges inside a class, in 0..1
    largest_class: float  # share of the largest class among the target nodes, in 0..1
    split: str  # hash of the split


def statistics(datamodule: GraphDataModule) -> Statistics:
    """Compute the statistics of the graph of a datamodule."""
    graph = datamodule.graph
    low, high = torch.aminmax(graph.x)
    target_labels = graph.y[datamodule.target_nodes]
    return Statistics(
        nodes=graph.x.size(0),
        edges=graph.edge_index.size(1) // 2,
        features=datamodule.num_features,
        classes=datamodule.num_classes,
        feature_range=(low.item(), high.item()),
        homophily=float(homophily(graph.edge_index, graph.y)),
        largest_class=target_labels.bincount().max().item() / target_labels.numel(),
        split=datamodule.split_hash,
    )


def dataset_statistics(data_dir: str | Path) -> pd.DataFrame:
    """Tabulate the statistics of available datasets; `problem` is the reason if one is invalid."""
    rows = []
    for name, _, files in folders(data_dir):
        if any(file.state == "missing" for file in files):
            continue
        measured = measure_graph(name, data_dir)
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
    # As objects, so that a missing value does not turn integers of its column into floats.
    return pd.DataFrame(rows, columns=columns, dtype=object).fillna("-")


def measure_graph(name: str, data_dir: str | Path) -> Statistics | DataError:
    """Compute the statistics of a dataset, or return the error if it is invalid."""
    try:
        return statistics(open_dataset(name, data_dir))
    except DataError as error:
        return error


def open_dataset(name: str, data_dir: str | Path | None = None) -> GraphDataModule:
    """Open a dataset as in a run: with normalised features, a split, and its default difficulty.

    Args:
        name: Its `dataset=` option, such as cora.
        data_dir: The data directory; `None` for `ROBUST_DIFFUSION_DATA`, or `data` if that is not
            set.

    Returns:
        The datamodule. Its files are read at the first use, and never downloaded.

    Raises:
        ConfigError: There is no dataset of that name.

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


def compose_dataset(name: str, data_dir: str | Path) -> DictConfig:
    """Compose the configuration with a dataset, without downloading anything."""
    cfg = deepcopy(_composed(name))
    # Not set by an override, in whose grammar some characters of a path have a meaning.
    cfg.paths.data_dir = str(data_dir)
    return cfg


@cache
def _composed(name: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("config", [f"dataset={name}", "download=false"])
