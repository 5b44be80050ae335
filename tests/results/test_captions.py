"""Words of captions."""

import pytest

from robust_diffusion.results.captions import describe_cuts


@pytest.mark.parametrize(
    ("limit", "patience", "cuts"),
    [
        (200, 500, ["training cut at 200 epochs"]),
        (1000, 500, []),
        (8000, 9000, ["training cut at 8000 epochs"]),
        (1000, 50, ["early stopping after 50 epochs, not 500"]),
    ],
)
def test_a_shortened_training_is_named(limit: int, patience: int, cuts: list[str]) -> None:
    training = {"max_epochs": limit, "patience": patience}
    assert describe_cuts([{"config": {"training": training}}]) == cuts
