"""Graphs: sources, checks, normalisation, splits, and the datamodule that serves them."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.data.batching import Clusters as Clusters
    from robust_diffusion.data.batching import FullBatch as FullBatch
    from robust_diffusion.data.datamodule import GraphDataModule as GraphDataModule
    from robust_diffusion.data.download import DatasetFolder as DatasetFolder

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
