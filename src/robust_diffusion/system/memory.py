"""Choice whether a process keeps the memory that it frees, or returns it to the system."""

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

KEPT_ABOVE = 2**25
"""Bytes of a tensor above which the GNU C library returns its memory as soon as it is freed."""

KEPT_BELOW = 1 / 4
"""Share of the machine's memory up to which a process keeps the memory that it frees."""

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Options of that library's `mallopt`."""

log = logging.getLogger(__name__)


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, as long as the machine has enough.

    If memory is returned to the system, each large tensor of each epoch costs a page fault per
    4 kB, and the system fills each page with zeros. If it is kept, memory grows to its peak and
    stays there, and blocks of unlike sizes leave gaps in it, up to half as much again. Results do
    not change. Without the GNU C library on Linux, nothing is done.
    """
    try:
        library = ctypes.CDLL(None)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if pages < KEPT_BELOW * os.sysconf("SC_PHYS_PAGES"):
            # The first without limit, the second none: all memory comes from the heap.
            trim_threshold, mmap_max = -1, 0
        else:  # the library's own values after large blocks were freed
            trim_threshold, mmap_max = KEPT_ABOVE, 65536
        library.mallopt(TRIM_THRESHOLD, trim_threshold)
        library.mallopt(MMAP_MAX, mmap_max)
        if mmap_max:
            library.malloc_trim(0)
    except (AttributeError, OSError, TypeError, ValueError):
        return
    _log_once("gives back" if mmap_max else "keeps")


@cache
def _log_once(verb: str) -> None:
    log.info("a large graph: this process %s the memory that it frees", verb)
