"""Progress of long computations: a bar on a terminal, elsewhere a line a minute."""

import logging
import sys
import time

from tqdm import tqdm

log = logging.getLogger(__name__)

_BAR = "{desc}: {bar:10} {n_fmt}/{total_fmt} {unit}{postfix}"
LINE_SECONDS = 60.0


class Progress:
    """Progress bar of a `with` block on a terminal; elsewhere a line a minute in the log.

    Bars of nested blocks stand one below the other.

    Examples:
        >>> from robust_diffusion.system.progress import Progress
        >>> with Progress("draws", 100, shown=False) as tell:
        ...     for _ in range(100):
        ...         tell(1)
        >>> tell.done
        100

    Args:
        name: Name of the computation.
        total: Steps in all, if known; the time left follows from it.
        unit: Unit of the steps.
        shown: False shows nothing at all.
        lines: False logs no line a minute.
    """

    label = ""
    """Text before the name of every bar: which run of a sweep goes on in this process."""

    hidden = False
    """True in a process that shares its terminal with others."""

    around: "Progress | None" = None
    """Progress of the sweep that the runs of this process belong to."""

    inner: "Progress | None" = None
    """The computation that goes on in a run of the sweep."""

    def __init__(
        self,
        name: str = "",
        total: int | None = None,
        unit: str = "",
        *,
        shown: bool = True,
        lines: bool = True,
    ) -> None:
        self.done = self.free = 0
        self.total = total
        self._name, self._unit, self._note = f"{self.label}{name}", unit, ""
        self._start = self._last = time.monotonic()
        watched = shown and sys.stderr.isatty() and not self.hidden
        self._next = self._start + LINE_SECONDS if shown and lines and not watched else float("inf")
        self._bar = tqdm(
            desc=self._name,
            total=total,
            unit=unit,
            leave=False,
            dynamic_ncols=True,
            miniters=0,  # redraw even without steps, since time passes
            bar_format=_BAR,
            disable=not watched,
        )

    def __call__(self, steps: int = 0, *, free: int = 0, note: str = "") -> bool:
        """Advance the progress bar by `steps`, and return whether anything was shown.

        Args:
            steps: Steps done since the last call.
            free: Those of them that were done in an earlier run, and took no time now.
            note: Text behind the bar, until the next note.
        """
        self.done, self.free, self._note = self.done + steps, self.free + free, note or self._note
        if self.total is not None and self.done > self.total:
            self.total = None  # the total was an estimate
        now = time.monotonic()
        self._last = now if steps else self._last
        if self._bar.disable and now < self._next:
            return False
        self._next = now + LINE_SECONDS
        left = self.seconds_left()
        rest = "" if left is None else f"{tqdm.format_interval(left)} left"
        if Progress.around not in (None, self):
            Progress.inner = self
            if (whole := Progress.around.seconds_left()) is not None:
                rest += f"{', ' * bool(rest)}{tqdm.format_interval(whole)} of the sweep"
        notes = list(filter(None, [self._note, rest]))
        if not self._bar.disable:
            self._bar.total = self.total
            self._bar.set_postfix_str(", ".join(notes), refresh=False)
            return bool(self._bar.update(steps))
        done = f"{self.done} of {self.total}" if self.total else f"{self.done}"
        line = ", ".join([f"{done} {self._unit}".strip(), *notes])
        if log.hasHandlers():
            log.info("%s: %s", self._name, line, extra={"progress": True})
        else:  # of a command or a script, which sets up no log
            sys.stderr.write(f"{self._name}: {line}\n")
        return True

    def seconds_left(self) -> float | None:
        """Estimate the seconds left from the mean of the steps that took time.

        The step that goes on takes what its own computation still expects, if that is longer.
        `None` if nothing is known.
        """
        if self.total is None:
            return None
        inner = (
            Progress.inner.seconds_left() if self is Progress.around and Progress.inner else None
        )
        left = self.total - self.done
        if self.done == self.free:
            return inner if left == 1 else None
        mean = (self._last - self._start) / (self.done - self.free)
        current = max(mean - (time.monotonic() - self._last), inner or 0.0)
        return max(current, 0.0) + mean * (left - 1) if left else 0.0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if Progress.inner is self:
            Progress.inner = None
        self._bar.close()


class LineHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Log handler that writes lines above the bars, not into them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)
