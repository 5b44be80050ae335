"""Lightning at work on one graph in memory."""

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

LOGGERS = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]


def hide_advice() -> None:
    """Hide the advice above and banners on devices and tips, from now on; warnings stay."""
    for logger in LOGGERS:
        logger.setLevel(max(logger.level, logging.WARNING))
    for message in NOT_FOR_ONE_GRAPH:
        warnings.filterwarnings("ignore", message=f".*{message}")


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide advice and banners in a `with` block, from which Ctrl-C and SIGTERM reach the caller."""
    levels = [logger.level for logger in LOGGERS]
    try:
        with warnings.catch_warnings():
            hide_advice()
            yield
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # of which Lightning makes an exit
            raise type(stop.__context__) from stop
        raise
    finally:
        for logger, level in zip(LOGGERS, levels, strict=True):
            logger.setLevel(level)
