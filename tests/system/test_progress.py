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


def test_without_a_log_the_line_goes_to_standard_error(
    clock: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a command or a script
    with Progress("auto", 100, "passes") as tell:
        for second in range(0, 130, 10):
            clock(second)
            tell(5)
    assert capsys.readouterr().err.splitlines() == [
        "auto: 35 of 100 passes, 01:51 left",
        "auto: 65 of 100 passes, 01:04 left",
    ]


def test_the_time_left_of_a_sweep_includes_the_attack_that_runs(
    clock: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    sweep = Progress("sweep", 4, "runs", lines=False)
    monkeypatch.setattr(Progress, "around", sweep)
    with sweep, Progress("auto", 100, "passes") as attack:
        assert sweep.seconds_left() is None
        clock(100)
        sweep(1)
        assert sweep.seconds_left() == 300
        clock(160)
        attack(10)
        assert caplog.messages == ["auto: 10 of 100 passes, 24:00 left, 27:20 of the sweep"]
        sweep(2)
        clock(170)
        attack(0)
        assert sweep.seconds_left() == attack.seconds_left()  # the last run, and nothing else
    assert sweep.seconds_left() == 160 / 3 - 10
    sweep(1)
    assert sweep.seconds_left() == 0


def test_no_forecast_passes_its_total(clock: Callable[[float], None]) -> None:
    tell = Progress("auto", 10, "passes")
    for second in range(30):
        clock(second)
        tell(1)
        assert tell.total is None or tell.done <= tell.total
        assert (tell.seconds_left() or 0) >= 0
