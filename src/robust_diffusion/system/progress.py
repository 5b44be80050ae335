"""Progress of what takes long: a bar on a terminal, elsewhere a line a minute."""

import io
import logging
import sys
import time

from tqdm import tqdm

log = logging.getLogger(__name__)

_BAR = "{desc}: {bar:10} {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
LINE_SECONDS = 60.0


class Progress:
    """A bar within a `with` block, on a terminal; elsewhere a line a minute in the log.

    Bars of blocks within each other stand one below the other.

    Examples:
        >>> from robust_diffusion.system.progress import Progress
        >>> with Progress("draws", 100, shown=False) as tell:
        ...     for _ in range(100):
        ...         tell(1)
        >>> tell.done
        100

    Args:
        name: What is done.
        total: Steps in all, as far as that is known; the time left follows from it.
        unit: Of the steps, for the lines.
        shown: False shows nothing at all.
    """

    def __init__(
        self, name: str = "", total: int | None = None, unit: str = "", *, shown: bool = True
    ) -> None:
        self.done = self.free = 0
        self._name, self._total, self._unit, self._note = name, total, unit, ""
        self._start = time.monotonic()
        watched = shown and sys.stderr.isatty()
        self._next = self._start + LINE_SECONDS if shown and not watched else float("inf")
        self._bar = tqdm(
            desc=name,
            total=total,
            leave=False,
            dynamic_ncols=True,
            smoothing=0,  # parts differ in speed
            miniters=0,  # time goes on where nothing is done
            bar_format=_BAR,
            disable=not watched,
        )

    def __call__(self, steps: int = 0, *, free: int = 0, note: str = "") -> None:
        """Advance the progress bar by `steps`.

        Args:
            steps: Of them all.
            free: Of these, how many were done in an earlier run, and took no time now.
            note: What is going on, until the next note.
        """
        self.done, self.free = self.done + steps, self.free + free
        if self._total is not None and self.done > self._total:
            self._total = self._bar.total = None  # it was a guess
        if note and note != self._note:
            self._note = note
            self._bar.set_postfix_str(note, refresh=False)
        if not self._bar.disable:
            self._bar.initial = self.free
            self._bar.update(steps)
        elif (now := time.monotonic()) >= self._next:
            self._next = now + LINE_SECONDS
            log.info("%s", self._line(now - self._start))

    def _line(self, seconds: float) -> str:
        of = f" of {self._total}" if self._total else ""
        told = [f"{self.done}{of} {self._unit}".rstrip(), self._note]
        if self._total and (computed := self.done - self.free):
            left = seconds / computed * (self._total - self.done)
            told.append(f"about {duration(left)} left")
        return f"{self._name}: {', '.join(filter(None, told))}"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


class Lines(io.TextIOWrapper):
    """Standard error of a process beside that which has the bar: whole lines, in the bar's place.

    Args:
        number: The terminal's file.
    """

    def __init__(self, number: int) -> None:
        super().__init__(open(number, "wb", closefd=False), line_buffering=True)  # noqa: SIM115

    def isatty(self) -> bool:
        """False, so that nothing draws a bar of its own."""
        return False

    def write(self, text: str) -> int:
        """Write lines."""
        return super().write(f"\r\x1b[K{text}")


class LineHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes lines above the bars, not into them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


def duration(seconds: float) -> str:
    """A time in words, such as `2 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
