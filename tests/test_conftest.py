"""The sample that `--fast` draws, and the time that a test may take."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests import conftest


@dataclass(frozen=True)
class Item:
    nodeid: str
    slow: bool = False
    config: Any = None

    def get_closest_marker(self, name: str) -> bool:
        return self.slow and name == "slow"


@pytest.mark.parametrize(
    ("slow", "limit"), [(True, 1.0), (False, None), (False, 9.0), (False, 1.0)]
)
def test_a_test_beyond_the_limit_fails_unless_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, slow: bool, limit: float | None
) -> None:
    config = type("Config", (), {"getoption": lambda *_: limit})()
    call = conftest.pytest_runtest_call(Item("a", slow, config))  # type: ignore[arg-type]
    clock = iter([10.0, 15.0])
    with monkeypatch.context() as context:
        context.setattr(conftest.time, "process_time", lambda: next(clock))
        next(call)
        with pytest.raises(StopIteration if slow or limit != 1.0 else pytest.fail.Exception):
            next(call)
