import math

import pytest

from robust_diffusion.checks import check_choice, check_name, check_number, check_whole
from robust_diffusion.errors import ConfigError


@pytest.mark.parametrize(
    ("check", "bounds", "inside", "outside"),
    [
        (check_whole, {"at_least": 2}, [2, 10**9], [1, -5, 2.0, 2.5, True, "2", [2]]),
        (check_number, {}, [0, -1e300], [math.nan, math.inf, -math.inf, 10**400, "0.5", True, [1]]),
        (check_number, {"at_least": 0}, [0.0], [-0.1]),
        (check_number, {"above": 0}, [1e-9], [0.0]),
        (check_number, {"at_most": 1}, [1.0], [1.1]),
        (check_number, {"below": 1}, [0.999], [1.0]),
        (check_number, {"above": 0, "at_most": 0.5}, [0.5], [0.6]),
        (check_choice, {"options": ["c", "b"]}, ["b"], ["d"]),
        (check_name, {}, ["cora", "my graph-2.1", "Köln", "a" * 100, "3"], ["", ".", "..", "../x"]),
        (check_name, {}, [], ["/x", "a/b", "a\\b", "-x", ".x", "a\nb", "{epoch}", "a" * 101, 3]),
    ],
)
def test_a_value_is_returned_or_refused_by_its_key(
    check: object, bounds: dict[str, object], inside: list[object], outside: list[object]
) -> None:
    assert callable(check)
    for value in inside:
        found = check("a.key", value, **bounds)
        assert found == value
        assert check is not check_number or isinstance(found, float)
    for value in outside:
        with pytest.raises(ConfigError, match=r"^a\.key="):
            check("a.key", value, **bounds)
