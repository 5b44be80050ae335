"""Number of threads that a process computes on."""

import logging
import os
from collections.abc import Sequence

import torch

from robust_diffusion.checks import Count, check_value
from robust_diffusion.errors import ConfigError

LONG_EPOCH = 0.2
"""Seconds of an epoch, on one thread, from which on `auto` takes all cores: below, they wait for
each other more than they compute."""

SECONDS_PER_EDGE = 6e-9
"""Time of an epoch per directed edge, layer and channel: Beltrami on Amazon Computer, one step."""

log = logging.getLogger(__name__)


def set_threads(
    threads: int | str, num_edges: int = 0, widths: int | Sequence[int] = 64, num_layers: int = 3
) -> int:
    """Set the threads of this process, and return their number.

    The kernels' results do not depend on it; products of matrices may round otherwise.

    Args:
        threads: A number of at least 1; or `auto` for 1 on a small graph, and for all cores where
            an epoch would take `LONG_EPOCH` on one. That is estimated from the graph's size, not
            measured, so that the same run always runs alike.
        num_edges: Directed edges of the graph; 0 before it is known.
        widths: Of the hidden layers.
        num_layers: Number of layers.

    Raises:
        ConfigError: Neither `auto` nor such a number.
    """
    if threads != "auto":
        if isinstance(threads, str):
            raise ConfigError(f"threads={threads}: must be auto or a whole number of at least 1")
        torch.set_num_threads(check_value("threads", threads, Count))
        return torch.get_num_threads()
    width = widths if isinstance(widths, int) else max(widths, default=64)
    seconds = SECONDS_PER_EDGE * num_edges * num_layers * width
    chosen = _cores() if seconds >= LONG_EPOCH else 1
    torch.set_num_threads(chosen)
    if num_edges:
        log.info(
            "threads=auto: %d, for an epoch of about %.0f ms on one thread", chosen, 1e3 * seconds
        )
    return chosen


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
