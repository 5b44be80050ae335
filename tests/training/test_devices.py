import pickle
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from robust_diffusion.data import Clusters
from robust_diffusion.errors import ConfigError
from robust_diffusion.models import GCN
from robust_diffusion.operators import current_backend, set_backend
from robust_diffusion.training import Fit
from robust_diffusion.training.devices import Outcome

Make = Callable[..., Any]


@pytest.fixture
def make_parallel() -> Make:
    """Builds a Fit of few epochs whose trainer has the given options."""

    def make(**options: Any) -> Fit:
        quiet = {"enable_model_summary": False, "num_sanity_val_steps": 0}
        return Fit(partial(pl.Trainer, accelerator="cpu", **quiet, **options), max_epochs=3)

    return make


@pytest.mark.parametrize(
    ("options", "batching", "key"),
    [
        ({"devices": 2}, None, "trainer.devices=2: batching=full"),
        ({"devices": 3}, Clusters(4, 2), "trainer.devices=3: "),
        ({"devices": 2, "num_nodes": 2}, Clusters(8, 1), "trainer.num_nodes=2: "),
        ({"devices": 2, "strategy": "fsdp"}, Clusters(8, 1), "trainer.strategy"),
    ],
)
def test_devices_without_a_batch_each_are_refused(
    make_parallel: Make,
    make_datamodule: Make,
    tmp_path: Path,
    options: dict[str, Any],
    batching: Any,
    key: str,
) -> None:
    datamodule = make_datamodule(batching=batching)
    with pytest.raises(ConfigError, match=key):
        make_parallel(**options)(GCN(16, 8, 7), datamodule, directory=tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_two_processes_train_one_model(
    make_parallel: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    fit = make_parallel(devices=2, strategy="ddp")
    datamodule = make_datamodule(batching=Clusters(8, 2))
    pl.seed_everything(0, verbose=False)
    untrained = GCN(datamodule.num_features, 8, datamodule.num_classes)
    before = {key: value.clone() for key, value in untrained.state_dict().items()}
    result = fit(untrained, datamodule, directory=tmp_path)
    trainer = fit.trainer()
    assert trainer.world_size == 1
    trained = result.module.model
    assert result.epochs == 3
    assert any((before[key] != value).any() for key, value in trained.state_dict().items())
    # The score that the processes handed over is that of the weights that they handed over.
    (scored,) = trainer.validate(result.module, datamodule.val_dataloader(), verbose=False)
    assert scored["val_accuracy"] == pytest.approx(result.val_accuracy)
    assert [path.suffix for path in tmp_path.iterdir()] == [".ckpt"]


def test_a_new_process_computes_as_this_one(tmp_path: Path) -> None:
    before = current_backend()
    try:
        set_backend("reference")
        pickled = pickle.dumps(Outcome(tmp_path / "outcome.json"))
        set_backend("torch")
        with warnings.catch_warnings():
            pickle.loads(pickled)
        assert current_backend() == "reference"
    finally:
        set_backend(before)  # type: ignore[arg-type]
