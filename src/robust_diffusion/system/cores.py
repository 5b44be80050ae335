"""CPU cores of a process."""

import os


def usable_cores() -> int:
    """Return the number of cores that this process may use, as by `taskset` or in a cluster job."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
