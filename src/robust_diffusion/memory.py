"""Memory that is freed, and kept for what comes next."""

import ctypes
import logging
from functools import cache

KEPT_ABOVE = 2**25
"""Bytes of a tensor above which the GNU C library gives its memory back as soon as it is freed."""

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Options of that library's `mallopt`."""

log = logging.getLogger(__name__)


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, from now on.

    Given back, each large tensor of each epoch would cost a page fault per 4 kB, and the system
    fills each page with zeros. Memory grows to its peak, which may be higher since blocks of
    unlike sizes share one heap, and stays there. Results do not change.

    Returns:
        Whether it is set: elsewhere than with the GNU C library, nothing is done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # The first without limit, the second none: all memory comes from the heap.
    kept = bool(mallopt(TRIM_THRESHOLD, -1)) and bool(mallopt(MMAP_MAX, 0))
    if kept:
        log.info("a large graph: this process keeps the memory that it frees")
    return kept
