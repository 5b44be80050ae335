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


def hide_advice() -> None:
    """Hide the advice above and banners on devices and tips, from now on; warnings stay."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))
    for message in NOT_FOR_ONE_GRAPH:
        warnings.filterwarnings("ignore", message=f".*{message}")


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide them in a `with` block."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            hide_advice()
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
