"""Words of captions."""

import pytest

from robust_diffusion.results.captions import describe_cuts


@pytest.mark.parametrize(
    ("epochs", "limit", "is_cut"), [(507, 1000, False), (1000, 1000, True), (8000, 8000, True)]
)
def test_a_training_is_cut_if_its_recorded_limit_ended_it(
    epochs: int, limit: int, is_cut: bool
) -> None:
    record = {"epochs": epochs, "config": {"training": {"max_epochs": limit}}}
    assert describe_cuts([record]) == [f"training cut at {limit} epochs"] * is_cut
