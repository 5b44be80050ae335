import logging
import warnings

import pytest

from robust_diffusion.training import quiet_lightning

HIDDEN = [
    "The 'train_dataloader' does not have many workers which may be a bottleneck.",
    "`isinstance(treespec, LeafSpec)` is deprecated, use `treespec.is_leaf()` instead.",
]


def test_advice_for_many_batches_is_hidden_inside_and_other_warnings_stay() -> None:
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet_lightning():
            for message in [*HIDDEN, "something is wrong"]:
                warnings.warn(message, UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["something is wrong"]
    assert list(warnings.filters) == before


def test_banners_are_hidden_inside_alone(caplog: pytest.LogCaptureFixture) -> None:
    banners = logging.getLogger("pytorch_lightning")
    with caplog.at_level(logging.INFO, "pytorch_lightning"):
        with quiet_lightning():
            banners.info("GPU available: False")
            banners.warning("no validation loader")
        banners.info("seed set")
    assert [record.message for record in caplog.records] == ["no validation loader", "seed set"]


def test_an_exit_that_is_no_ctrl_c_stays_one() -> None:
    with pytest.raises(SystemExit) as caught, quiet_lightning():
        raise SystemExit(3)
    assert caught.value.code == 3
