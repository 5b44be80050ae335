"""What a long computation says where nobody watches, and on a terminal."""

import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from robust_diffusion.system.progress import LineHandler, Lines, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock."""
    now = [0.0]
    monkeypatch.setattr("robust_diffusion.system.progress.time.monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_without_a_terminal_there_is_a_line_a_minute(
    clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Progress("auto", 100, "passes") as tell, Progress("other", shown=False) as silent:
        tell(10, free=10)  # of an earlier run
        for second in range(150):
            clock(second)
            tell(0 if second % 10 else 5, note="part")
            silent(1)
        clock(200)
        tell(100)
    assert caplog.messages == [
        "auto: 45 of 100 passes, part, about 1 min 34 s left",
        "auto: 75 of 100 passes, part, about 46 s left",
        "auto: 185 passes, part",  # more than was guessed
    ]


def test_lines_stand_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("auto", 4, "passes") as tell:
        tell(2, note="accuracy 10.00 %")
        LineHandler(terminal).emit(logging.makeLogRecord({"msg": "a line"}))
    shown = terminal.getvalue()
    assert shown.rstrip().rsplit("\r", 1)[0].count("a line\n") == 1
    before, after = shown.split("a line\n")
    assert before.endswith("\r")  # the bar was cleared
    assert "2/4" in after


def test_a_process_beside_that_with_the_bar_draws_none(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        lines = Lines(file.fileno())
        lines.write("a line\n")
        assert not lines.isatty()
        lines.close()
    assert (tmp_path / "out").read_bytes() == b"\r\x1b[Ka line\n"
