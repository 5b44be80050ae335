"""Memory that is freed: kept for what comes next, or given back."""

import ctypes
import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

KEPT_ABOVE = 2**25
"""Bytes of a tensor above which the GNU C library gives its memory back as soon as it is freed."""

KEPT_BELOW = 1 / 4
"""Share of the machine's memory that a process may take and still keep what it frees."""

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Options of that library's `mallopt`."""

ITS_OWN = {TRIM_THRESHOLD: KEPT_ABOVE, MMAP_MAX: 65536}
"""Values of these, as the library has them once large blocks were freed."""

log = logging.getLogger(__name__)


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, as long as the machine has enough.

    Given back, each large tensor of each epoch would cost a page fault per 4 kB, and the system
    fills each page with zeros. Kept, memory grows to its peak and stays there, and blocks of
    unlike sizes leave gaps in it, up to half as much again. Results do not change.

    Returns:
        Whether it is kept. Elsewhere than with the GNU C library on Linux, nothing is done.
    """
    library = _gnu_library()
    if library is None:
        return False
    if _share_taken() < KEPT_BELOW:
        # The first without limit, the second none: all memory comes from the heap.
        is_set = bool(library.mallopt(TRIM_THRESHOLD, -1)) and bool(library.mallopt(MMAP_MAX, 0))
        _tell_once("keeps the memory that it frees")
        return is_set
    for option, value in ITS_OWN.items():
        library.mallopt(option, value)
    library.malloc_trim(0)
    _tell_once(f"gives back what it frees: it takes {KEPT_BELOW:.0%} of the machine's memory")
    return False


@cache
def _gnu_library() -> Any:
    """The C library, if it is GNU's and the system tells what a process takes."""
    try:
        library = ctypes.CDLL(None)
        _ = library.mallopt, library.malloc_trim, _share_taken()
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    return library


def _share_taken() -> float:
    """Memory of this process, as a share of the machine's."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages / os.sysconf("SC_PHYS_PAGES")


@cache
def _tell_once(what: str) -> None:
    log.info("a large graph: this process %s", what)
