"""Graphs: where they come from, how they are checked, normalised, split and served."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.data.batching import Clusters as Clusters
    from robust_diffusion.data.batching import FullBatch as FullBatch
    from robust_diffusion.data.datamodule import GraphDataModule as GraphDataModule
    from robust_diffusion.data.download import DatasetFolder as DatasetFolder

if not TYPE_CHECKING:  # where a checker would take any name for one of the package
    __getattr__ = lazy_attributes(__name__)
