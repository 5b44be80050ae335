import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.models import GCN
from robust_diffusion.models.widths import layer_widths
from tests.graphs import without_type_checks


@pytest.mark.parametrize(
    ("hidden", "num_layers", "expected"),
    [
        (8, 1, [5, 3]),
        (8, 2, [5, 8, 3]),
        (8, 4, [5, 8, 8, 8, 3]),
        ([], 1, [5, 3]),
        ([7, 9], 3, [5, 7, 9, 3]),
        ((7,), 2, [5, 7, 3]),
    ],
)
def test_widths(hidden: int | list[int], num_layers: int, expected: list[int]) -> None:
    assert layer_widths(5, hidden, 3, num_layers) == expected


@pytest.mark.parametrize(
    ("hidden", "num_layers", "message"),
    [
        *[(h, 3, r"hidden_channels=.*3 layers need 2 widths") for h in ([7], [7, 8, 9], [])],
        *[(h, 3, "hidden_channels=") for h in (0, -1, 2.5, True, "64", None, [0, 8], [8, 1.5])],
        *[(8, n, f"num_layers={n}") for n in (0, -2, None)],
    ],
)
def test_a_bad_value_names_its_key(hidden: object, num_layers: object, message: str) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"model\.{message}"):
        GCN(5, hidden, 3, num_layers=num_layers)
