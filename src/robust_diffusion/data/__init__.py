"""Graphs: where they come from, how they are checked, normalised, split and served."""

from robust_diffusion.data.batching import Clusters, FullBatch
from robust_diffusion.data.datamodule import GraphDataModule
from robust_diffusion.data.download import DatasetFolder

__all__ = ["Clusters", "DatasetFolder", "FullBatch", "GraphDataModule"]
