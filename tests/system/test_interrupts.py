import os
import signal
import time
from collections.abc import Iterator
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


def test_no_sigterm_is_raised_after_the_program_has_said_that_it_ends() -> None:
    end_on_sigterm()
    with pytest.raises(SystemExit, match="143"), boundary():
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
