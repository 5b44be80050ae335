"""Interruption of a run from outside: a time limit, and SIGTERM, which ends it as Ctrl-C does."""

import os
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

from annotated_types import Ge, Le

from robust_diffusion.checks import check_value
from robust_diffusion.errors import ConfigError, TrainingError

Seconds = Annotated[float, Ge(0.001), Le(10**8)]
"""Range of a time limit; a timer rounds less to 0, which is no limit, and rejects much more."""

REPEAT_SECONDS = 10.0
"""Seconds after which the alarm of a time limit rings again if it was not handled."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, in the middle of any code; handlers of Ctrl-C handle it, too."""


class _OutOfTime(BaseException):
    """End of a time limit, in the middle of any code; no `except Exception` may catch it."""


def end_on_sigterm() -> None:
    """Let SIGTERM raise `Terminated`, so that a run cleans up as after Ctrl-C.

    While a `Terminated` exists, it is on its way, and a second signal does not disturb the
    clean-up. Python discards one that is raised while an object is finalized.
    """
    raised: weakref.ref[Terminated] | None = None

    def end(_: int, __: FrameType | None) -> None:
        nonlocal raised
        if raised is not None and raised() is not None:
            return
        stop = Terminated()
        raised = weakref.ref(stop)
        try:
            raise stop
        finally:
            del stop  # which this frame, a part of its traceback, would keep alive

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def ignore_sigterm() -> None:
    """Ignore SIGTERM from now on, since the program ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """End the `with` block with a `TrainingError` after `seconds`; `None` for no limit.

    Raises:
        ConfigError: The number is out of range, or no timer can interrupt, as outside the main
            thread.
    """
    if seconds is None:
        yield
        return
    check_value("time_limit", seconds, Seconds)
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        raise ConfigError(f"time_limit={seconds}: needs the main thread of a POSIX system; drop it")

    def end(_: int, __: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    try:  # around the clean-up too, since the alarm may ring in the middle of it
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_SECONDS)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _OutOfTime:
        raise TrainingError(
            f"time_limit={seconds:g}: the run was not done after {seconds:g} s; raise the limit, "
            "or make the run smaller"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
