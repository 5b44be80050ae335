import math

import pytest

from robust_diffusion.checks import check_choice, check_name, check_number, check_whole
from robust_diffusion.errors import ConfigError


@pytest.mark.parametrize("value", [2, 3, 10**9])
def test_whole_number_in_range_is_returned(value: int) -> None:
    assert check_whole("a.key", value, at_least=2) is value


@pytest.mark.parametrize("value", [1, -5, 2.0, 2.5, True, "2", [2]])
def test_anything_but_a_whole_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_whole("a.key", value, at_least=2)
    assert str(caught.value) == f"a.key={value}: must be a whole number of at least 2"


@pytest.mark.parametrize("value", [0, 0.25, 1])
def test_number_is_returned_as_float(value: float) -> None:
    number = check_number("a.key", value, at_least=0, at_most=1)
    assert number == value
    assert isinstance(number, float)


def test_number_without_bounds_may_be_anything_finite() -> None:
    assert check_number("a.key", -1e300) == -1e300


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, "0.5", True, [0.5]], ids=str
)
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^a\.key=.*: "):
        check_number("a.key", value)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"at_least": 0}, 0.0, -0.1, "at least 0"),
        ({"above": 0}, 1e-9, 0.0, "above 0"),
        ({"at_most": 1}, 1.0, 1.1, "at most 1"),
        ({"below": 1}, 0.999, 1.0, "below 1"),
        ({"above": 0, "at_most": 0.5}, 0.5, 0.6, "above 0 and at most 0.5"),
    ],
)
def test_each_bound_is_held_and_named(
    bounds: dict[str, float], inside: float, outside: float, words: str
) -> None:
    assert check_number("a.key", inside, **bounds) == inside
    with pytest.raises(ConfigError) as caught:
        check_number("a.key", outside, **bounds)
    assert str(caught.value) == f"a.key={outside}: must be a finite number {words}"


def test_known_choice_is_returned() -> None:
    assert check_choice("a.key", "b", ["c", "b"]) == "b"


def test_unknown_choice_names_the_others_in_order() -> None:
    with pytest.raises(ConfigError) as caught:
        check_choice("a.key", "d", {"c", "b"})
    assert str(caught.value) == "a.key=d: unknown; use one of b, c"


@pytest.mark.parametrize("name", ["cora", "my graph-2.1", "Köln", "a" * 100, "3"])
def test_a_name_is_returned(name: str) -> None:
    assert check_name("a.key", name) == name


@pytest.mark.faults
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/x", "a/b", "a\\b", "-x", ".x", "a\nb", "{epoch}", "a" * 101, 3],
)
def test_what_could_be_a_path_is_no_name(name: object) -> None:
    with pytest.raises(ConfigError, match="is no name"):
        check_name("a.key", name)
