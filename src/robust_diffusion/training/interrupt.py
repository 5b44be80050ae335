"""Ctrl-C in the middle of Lightning's work."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_passes() -> Iterator[None]:
    """Let Ctrl-C in a `with` block reach the caller as `KeyboardInterrupt`.

    Lightning ends the process with status 1 instead, and ignores every further Ctrl-C.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as stop:
        if not isinstance(stop.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from stop
