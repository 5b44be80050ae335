import logging
import time
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.faults
def test_a_clock_that_is_put_back_promises_nothing(
    cli: Callable[..., Any], tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls = time.time(), iter(range(10**6))
    monkeypatch.setattr("robust_diffusion.cells.progress.time.time", lambda: now - next(calls))
    logging.getLogger("robust_diffusion").setLevel(logging.INFO)
    outcome = cli("-m", "flow=heat", "seed=0,1", *tiny_clean)
    assert outcome.status == 0
    assert "1 of 2 cells done\n" in outcome.err  # and no time that is left
    assert ["accuracy" in record for record in outcome.records] == [True, True]
