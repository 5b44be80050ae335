from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.nn.models import GCN

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.training.fit_model import fit
from tests.drawn import CLASSES, FEATURES, drawn_data
from tests.graphs import without_type_checks


def gcn(out_channels: int = CLASSES, **options: Any) -> GCN:
    torch.manual_seed(0)
    return GCN(FEATURES, 8, 2, out_channels, **options)


def test_a_model_of_anybody_learns_a_graph_of_anybody() -> None:
    model, data = gcn(), drawn_data()
    result = fit(model, data, max_epochs=20, accelerator="cpu")
    predicted = model(data.x, data.edge_index).argmax(1)
    assert result.checkpoint is None
    assert result.epochs == 20
    assert (predicted == data.y)[data.test_mask].float().mean() > 0.5


def test_a_training_is_repeated_by_torchs_seed(tmp_path: Path) -> None:
    runs = [
        fit(gcn(dropout=0.5), data, max_epochs=2, accelerator="cpu", directory=tmp_path)
        for data in (drawn_data(), GraphDataModule.from_data(drawn_data()))
    ]
    assert runs[0].val_accuracy == runs[1].val_accuracy
    assert runs[0].checkpoint == tmp_path / "best.ckpt"
    assert runs[0].checkpoint.is_file()


@pytest.mark.parametrize(
    ("options", "error", "key"),
    [
        ({"model": gcn(9)}, ConfigError, "model: "),
        ({"model": gcn(3)}, ConfigError, "model: "),
        ({"model": GCN}, ConfigError, "model: "),
        ({"data": drawn_data(val_mask=None)}, DataError, "data.val_mask: "),
        ({"max_epochs": 0}, ConfigError, "fit.max_epochs=0"),
        ({"accelerator": "gpus"}, ConfigError, "trainer.accelerator=gpus"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, Any], error: type[Exception], key: str
) -> None:
    given = {"model": gcn(), "data": drawn_data(), "max_epochs": 1} | options
    with without_type_checks(), pytest.raises(error, match=f"^{key}"):
        fit(**given)
