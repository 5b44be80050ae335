import os
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.system.boundary import boundary
from robust_diffusion.system.interrupts import Terminated, end_on_sigterm, time_limit
from robust_diffusion.training import quiet_lightning

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_takes_too_long_ends_though_errors_are_caught_on_the_way() -> None:
    start = time.monotonic()
    ends = pytest.raises(TrainingError, match=r"time_limit=0\.2: ")
    with ends, time_limit(0.2), suppress(Exception):
        time.sleep(30)
    assert time.monotonic() - start < 20


def test_limits_within_a_limit_do_not_put_it_off() -> None:
    def several() -> None:
        with time_limit(0.5):
            for _ in range(20):
                with time_limit(30):
                    time.sleep(0.3)

    start = time.monotonic()
    with pytest.raises(TrainingError, match=r"time_limit=0\.5: "):
        several()
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("seconds", [0, 1e-6, 1e30, "x", True, 1])
def test_a_limit_is_a_number_that_a_timer_takes_in_the_main_thread(seconds: Any) -> None:
    from tests.graphs import without_type_checks

    def limit() -> None:
        with without_type_checks(), pytest.raises(ConfigError, match="time_limit="):
            time_limit(seconds).__enter__()

    if seconds == 1 and seconds is not True:
        with ThreadPoolExecutor() as pool:
            pool.submit(limit).result()
    else:
        limit()


def test_sigterm_is_raised_once_as_ctrl_c_is_whatever_lightning_makes_of_it() -> None:
    end_on_sigterm()
    assert issubclass(Terminated, KeyboardInterrupt)

    def fit() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise SystemExit(1)  # noqa: B904 - as Lightning does

    def clean_up() -> None:
        try:
            with quiet_lightning():
                fit()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # cleaning up is not disturbed
            time.sleep(0.1)

    with pytest.raises(Terminated):
        clean_up()


class _Dying:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def _in_a_callback() -> None:
    thing = type("Thing", (), {})()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing, reference


@pytest.mark.parametrize("discards", [_Dying, _in_a_callback])
def test_a_discarded_sigterm_is_raised_again(
    monkeypatch: pytest.MonkeyPatch, discards: Callable[[], object]
) -> None:
    monkeypatch.setattr("robust_diffusion.system.interrupts.AGAIN", 0.05, raising=False)
    discarded = list[type]()
    monkeypatch.setattr(sys, "unraisablehook", lambda args: discarded.append(args.exc_type))
    end_on_sigterm()
    for _ in range(3):  # also if it is sent again
        discards()
    with pytest.raises(Terminated):
        time.sleep(20)
    assert set(discarded) == {Terminated}


def test_no_sigterm_is_raised_after_the_program_has_said_that_it_ends() -> None:
    end_on_sigterm()
    with pytest.raises(SystemExit, match="143"), boundary():
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
