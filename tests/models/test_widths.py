import pytest

from robust_diffusion.errors import ConfigError
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


@pytest.mark.parametrize("hidden", [[7], [7, 8, 9], []])
def test_list_of_the_wrong_length(hidden: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"model\.hidden_channels=.*3 layers need 2 widths"):
        layer_widths(5, hidden, 3, 3)


@pytest.mark.parametrize("hidden", [0, -1, 2.5, True, "64", None, [0, 8], [8, 1.5]])
def test_bad_width(hidden: object) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=r"model\.hidden_channels="):
        layer_widths(5, hidden, 3, 3)


@pytest.mark.parametrize("num_layers", [0, -2, 1.0, None])
def test_bad_number_of_layers(num_layers: object) -> None:
    message = rf"model\.num_layers={num_layers}"
    with without_type_checks(), pytest.raises(ConfigError, match=message):
        layer_widths(5, 8, 3, num_layers)
