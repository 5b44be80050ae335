import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from safetensors.torch import save_file

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.load import ModelTraining, Recipe, load_checkpoint
from robust_diffusion.models import GCN
from robust_diffusion.records.store import ArtifactStore
from tests.zoo import CONFIG

Make = Callable[..., Any]

FLOW = {"_target_": "robust_diffusion.flows.MeanCurvature", "_partial_": True}
PDE = {
    "_target_": "robust_diffusion.models.GraphPDE",
    "_partial_": True,
    "hidden_channels": 8,
    "num_layers": 2,
    "flow": FLOW | {"gradient_norm": "residual"},
}
BELTRAMI = FLOW | {"_target_": "robust_diffusion.flows.Beltrami"}


class Versioned(GCN):
    """Has a state that is no tensor."""

    version: Any = 0

    def get_extra_state(self) -> Any:
        return {"version": self.version}

    def set_extra_state(self, state: Any) -> None:
        self.version = state["version"]


def trained(datamodule: GraphDataModule, fit: Any, folder: Path, build: Any, config: Any) -> Path:
    """The entry of the store; the checkpoint lies in `folder`."""
    training = ModelTraining(datamodule, ArtifactStore(folder / "store"), 0, folder)
    return training("victim", Recipe(build, fit, {"model": config}), description="").path


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"flow": BELTRAMI}, "model.flow._target_"),
        ({"flow": FLOW}, "model.flow.gradient_norm"),
        ({"dropout": 0.25}, "model.dropout"),
    ],
)
@pytest.mark.parametrize("kind", ["store", "checkpoint"])
def test_load_checkpoint_options(
    make_datamodule: Make, make_fit: Make, tmp_path: Path, kind: str, changes: Any, key: str
) -> None:
    datamodule = make_datamodule()
    datamodule.setup()
    path = trained(datamodule, make_fit(max_epochs=1), tmp_path, instantiate(PDE), PDE)
    if kind == "checkpoint":
        (path,) = tmp_path.rglob("*.ckpt")
    load_checkpoint(PDE, datamodule, path)
    with pytest.raises(ConfigError, match=f"^checkpoint={path}: expected {key}=[^\n]*, got "):
        load_checkpoint(PDE | changes, datamodule, path)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_load_checkpoint_bare_weights(
    make_datamodule: Make, tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = GCN(16, 8, out_channels=7, num_layers=2, layer_norm=False).state_dict()
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(state, path)
    with caplog.at_level(logging.WARNING):
        model = load_checkpoint(CONFIG, make_datamodule(), path)
    (record,) = caplog.records
    assert "configuration" in record.message
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "content",
    [
        [torch.ones(2)],
        torch.ones(2),
        {"state_dict": None},
        {"state_dict": {}, "hyper_parameters": None},
    ],
)
def test_load_checkpoint_other_contents(
    make_datamodule: Make, tmp_path: Path, content: Any
) -> None:
    path = tmp_path / "odd.ckpt"
    torch.save(content, path)
    with pytest.raises(DataError, match=f"^checkpoint={path}: [^\n]*$"):
        load_checkpoint(CONFIG, make_datamodule(), path)


def test_load_checkpoint_extra_state(make_datamodule: Make, make_fit: Make, tmp_path: Path) -> None:
    config = {"_target_": f"{__name__}.Versioned", "hidden_channels": 8}

    def build(in_channels: int, out_channels: int) -> Versioned:
        model = Versioned(in_channels, 8, out_channels=out_channels)
        model.version = 3
        return model

    datamodule = make_datamodule()
    datamodule.setup()
    for _ in range(2):  # trained, and from the store
        trained(datamodule, make_fit(max_epochs=1), tmp_path, build, config)
    (path,) = tmp_path.rglob("*.ckpt")
    assert load_checkpoint(config, datamodule, path).version == 3
    torch.save(Versioned(16, 8, out_channels=7).state_dict(), path)
    assert load_checkpoint(config, datamodule, path).version == 0
