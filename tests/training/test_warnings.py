import logging
import warnings

import pytest

from robust_diffusion.training import quiet_lightning

HIDDEN = [
    "The 'train_dataloader' does not have many workers which may be a bottleneck.",
    "`isinstance(treespec, LeafSpec)` is deprecated, use `treespec.is_leaf()` instead.",
]


@pytest.mark.parametrize("message", HIDDEN)
def test_advice_for_many_batches_is_hidden(message: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet_lightning():
            warnings.warn(message, UserWarning, stacklevel=1)
    assert seen == []


def test_any_other_warning_stays() -> None:
    with pytest.warns(UserWarning, match="something is wrong"), quiet_lightning():
        warnings.warn("something is wrong", UserWarning, stacklevel=1)


def test_filters_are_put_back() -> None:
    before = list(warnings.filters)
    with quiet_lightning():
        assert list(warnings.filters) != before
    assert list(warnings.filters) == before


def test_banners_are_hidden_inside_alone(caplog: pytest.LogCaptureFixture) -> None:
    banners = logging.getLogger("pytorch_lightning")
    with caplog.at_level(logging.INFO, "pytorch_lightning"):
        with quiet_lightning():
            banners.info("GPU available: False")
            banners.warning("no validation loader")
        banners.info("seed set")
    assert [record.message for record in caplog.records] == ["no validation loader", "seed set"]
