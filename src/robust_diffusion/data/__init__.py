"""Graphs: where they come from, how they are checked, normalised, split and served.

Names are imported when they are first used: the datamodule brings Lightning along, a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robust_diffusion.data.batching import Clusters, FullBatch
    from robust_diffusion.data.datamodule import GraphDataModule
    from robust_diffusion.data.download import DatasetFolder

__all__ = ["Clusters", "DatasetFolder", "FullBatch", "GraphDataModule"]

_MODULES = {"DatasetFolder": "download", "GraphDataModule": "datamodule"}

if not TYPE_CHECKING:  # where a checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        """Import a name when it is first asked for (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'batching')}"), name)
