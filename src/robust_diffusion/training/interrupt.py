"""Ctrl-C, or SIGTERM, in the middle of Lightning's work."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_passes() -> Iterator[None]:
    """Let Ctrl-C in a `with` block reach the caller; Lightning makes it an exit of status 1."""
    try:
        yield
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):
            raise type(stop.__context__) from stop
        raise
