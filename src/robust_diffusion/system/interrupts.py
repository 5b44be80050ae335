"""Interruption of a run from outside: a time limit, and SIGTERM, which ends it as Ctrl-C does."""

import os
import signal
import threading
import time
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


AGAIN = 1.0
"""Seconds after which SIGTERM is raised again if it was discarded; managers of jobs wait ten."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, in the middle of any code; handlers of Ctrl-C handle it, too."""


class _OutOfTime(BaseException):
    """End of a time limit, in the middle of any code; no `except Exception` may catch it."""


def end_on_sigterm() -> None:
    """Let SIGTERM raise `Terminated`, so that a run cleans up as after Ctrl-C.

    Python discards an exception that is raised while an object is finalized, so the signal is
    repeated until `ignore_sigterm`. A `Terminated` that still exists is on its way, and is not
    disturbed, since cleaning up takes a while.
    """
    raised: weakref.ref[Terminated] | None = None

    def end(_: int, __: FrameType | None) -> None:
        nonlocal raised
        if raised is None:
            threading.Thread(target=repeat, daemon=True).start()
        elif raised() is not None:
            return
        stop = Terminated()
        raised = weakref.ref(stop)
        try:
            raise stop
        finally:
            del stop  # which this frame, a part of its traceback, would keep alive

    def repeat() -> None:
        time.sleep(AGAIN)
        while signal.getsignal(signal.SIGTERM) is end:
            # To the main thread, which may be waiting in a system call.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(AGAIN)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def ignore_sigterm() -> None:
    """Ignore SIGTERM from now on, since `Terminated` has been caught and the program ends."""
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
    (left, repeat), start = signal.getitimer(signal.ITIMER_REAL), time.monotonic()

    def restore() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        # The caller's alarm rings when it would have, or at once if that time is past.
        rest = left - (time.monotonic() - start)
        signal.setitimer(signal.ITIMER_REAL, max(rest, 0) or (left and repeat), repeat)
        if rest <= 0 < left:
            signal.raise_signal(signal.SIGALRM)

    try:  # around the clean-up too, since the alarm may ring in the middle of it
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_SECONDS)
            yield
        finally:
            restore()
    except _OutOfTime:
        restore()
        raise TrainingError(
            f"time_limit={seconds:g}: the run was not done after {seconds:g} s; raise the limit, "
            "or make the run smaller"
        ) from None
