"""The sample that `--fast` draws, and the time that a test may take."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests import conftest
from tests.conftest import CASES, sampled


@dataclass(frozen=True)
class Item:
    nodeid: str
    slow: bool = False
    config: Any = None

    def get_closest_marker(self, name: str) -> bool:
        return self.slow and name == "slow"


def kept(*items: Item, **options: Any) -> list[str]:
    found: list[Any] = list(items)
    return [item.nodeid for item in sampled(found, **options)]


def test_every_test_but_slow_ones_stays_and_of_long_lists_a_sample_that_tries_all_cases() -> None:
    few = [Item("a"), Item("b", slow=True), Item("c[0]"), Item("c[1]")]
    assert kept(*few) == ["a", "c[0]", "c[1]"]
    assert kept(*few, count=20, left_out=()) == ["a", "b", "c[0]", "c[1]"]
    items = [Item(f"test_{test}[{case}]") for test in range(40) for case in range(12)]
    found = kept(*items)
    assert found == kept(*items)
    assert len(found) == 40 * CASES
    assert {name.partition("[")[2] for name in found} == {f"{i}]" for i in range(12)}


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
