"""What a long computation says where nobody watches, and on a terminal."""

import logging
from collections.abc import Callable

import pytest

from robust_diffusion.system.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
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
        "auto: 45 of 100 passes, part, 01:34 left",
        "auto: 75 of 100 passes, part, 00:46 left",
        "auto: 185 passes, part",  # more than was guessed
    ]
