"""Lightning's warnings and banners that do not apply to one graph in memory."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

NOT_FOR_ONE_GRAPH = (
    # One graph is one batch: worker processes would only copy it.
    "does not have many workers",
    # Lightning calls a torch function that newer versions of torch rename.
    "isinstance.treespec, LeafSpec.",
)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide the advice above and banners on devices and tips in a `with` block; warnings stay."""
    banners = logging.getLogger("pytorch_lightning")
    level = banners.level
    banners.setLevel(max(level, logging.WARNING))
    try:
        with warnings.catch_warnings():
            for message in NOT_FOR_ONE_GRAPH:
                warnings.filterwarnings("ignore", message=f".*{message}")
            yield
    finally:
        banners.setLevel(level)
