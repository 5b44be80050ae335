"""Words of captions."""

import pytest

from robust_diffusion.results.captions import describe_cuts


@pytest.mark.parametrize(
    ("limit", "patience", "is_cut"), [(200, 500, True), (1000, 100, False), (8000, 9000, True)]
)
def test_a_training_is_cut_if_its_own_patience_never_ends(
    limit: int, patience: int, is_cut: bool
) -> None:
    training = {"max_epochs": limit, "patience": patience}
    found = describe_cuts([{"config": {"training": training}}])
    assert found == [f"training cut at {limit} epochs"] * is_cut
