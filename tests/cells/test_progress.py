import logging
import re
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
    assert "1 of 2 cells done\n" in outcome.err
    assert "2 of 2 cells done\n" in outcome.err
    assert ["accuracy" in record for record in outcome.records] == [True, True]


def test_cells_that_were_done_before_tell_nothing_of_the_time_left(
    cli: Callable[..., Any], tiny_clean: list[str]
) -> None:
    cli("-m", "flow=heat", "seed=0,1", *tiny_clean)
    logging.getLogger("robust_diffusion").setLevel(logging.INFO)
    outcome = cli("-m", "flow=heat", "seed=0,1,2,3", *tiny_clean)
    lines = outcome.err.splitlines()
    told = [line for line in lines if "cells done" in line]
    assert [" left" in line for line in told] == [False, False, True, False]
    assert lines[lines.index(told[-1]) - 1].startswith("synthetic heat: accuracy clean ")


def test_what_a_sweep_costs_is_told_before_it_starts(
    cli: Callable[..., Any], tiny_clean: list[str]
) -> None:
    first = cli("-m", "flow=heat", "seed=0,1", *tiny_clean)
    assert "2 cells; no record of this machine tells how long they take\n" in first.err
    second = cli("-m", "flow=heat,beltrami", "seed=1,2", *tiny_clean)
    assert re.search(
        r"4 cells: 2 of them about \d+ s on 1 core, 2 like none recorded\n", second.err
    )
