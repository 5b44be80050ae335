"""The sample that `--fast` draws."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.conftest import CASES, sampled


@dataclass(frozen=True)
class Item:
    nodeid: str
    slow: bool = False

    def get_closest_marker(self, name: str) -> bool:
        return self.slow and name == "slow"


def kept(*items: Item) -> list[str]:
    found: list[Any] = list(items)
    return [item.nodeid for item in sampled(found)]


def test_every_test_but_slow_ones_stays() -> None:
    assert kept(Item("a"), Item("b", slow=True), Item("c[0]"), Item("c[1]")) == [
        "a",
        "c[0]",
        "c[1]",
    ]


def test_a_long_list_of_cases_is_sampled() -> None:
    names = [f"a[{i}]" for i in range(30)]
    found = kept(*map(Item, names))
    assert len(found) == CASES
    assert found == kept(*map(Item, names))
    places = [names.index(name) for name in found]
    assert {b - a for a, b in pairwise(places)} == {30 // CASES}


def test_more_cases_take_slow_tests_along() -> None:
    items: list[Any] = [Item(f"a[{i}]", slow=i % 2 == 0) for i in range(12)]
    assert len(sampled(items, 5, ())) == 5
    assert sampled(items, 20, ()) == items


def test_tests_of_one_list_try_all_cases() -> None:
    items = [Item(f"test_{test}[{case}]") for test in range(40) for case in range(12)]
    assert {name.partition("[")[2] for name in kept(*items)} == {f"{i}]" for i in range(12)}
