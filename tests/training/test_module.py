import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from robust_diffusion.training import NodeClassification
from robust_diffusion.training.module import first_non_finite
from tests.training.toys import DegreeLinear, Linear, Overflowing


@pytest.mark.parametrize(("model", "given"), [(Linear(), False), (DegreeLinear(), True)])
@pytest.mark.parametrize("degree_leak", [False, True])
def test_degrees_go_to_models_that_normalize(
    make_datamodule: Callable[..., Any], model: Linear, given: bool, degree_leak: bool
) -> None:
    view = make_datamodule(degree_leak=degree_leak).view("train")
    model.degrees.clear()
    NodeClassification(model, num_classes=7)(view)
    (degree,) = model.degrees
    assert (degree is not None) is (given and degree_leak)
    assert degree is None or torch.equal(degree, view.degree)


def forward(model: nn.Module) -> Callable[[], Any]:
    return lambda: model(torch.ones(2, 16), torch.zeros(2, 0, dtype=torch.long))


def test_names_what_is_not_finite_and_leaves_no_hook() -> None:
    model, good = Overflowing(), Linear()
    assert "blow" in first_non_finite(model, forward(model))
    model.first.weight.data[0, 0] = float("nan")
    assert "first.weight" in first_non_finite(model, forward(model))
    assert "logits" in first_non_finite(good, forward(good))
    assert not any(module._forward_hooks for of in (model, good) for module in of.modules())


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        **options,
    )


def test_a_bare_trainer_fits_tests_and_predicts(
    make_datamodule: Callable[..., Any], tmp_path: Path
) -> None:
    datamodule = make_datamodule()
    graph = datamodule.graph
    datamodule.add_test_graph("attacked", graph.x, graph.edge_index)
    module = NodeClassification(Linear(), num_classes=7)
    bare = trainer(tmp_path, max_epochs=1)
    bare.fit(module, datamodule)
    (clean, attacked) = bare.test(module, datamodule, verbose=False)
    assert clean["test/clean"] == attacked["test/attacked"]
    (logits,) = bare.predict(module, datamodule)
    assert torch.equal(logits, module.model(graph.x, graph.edge_index))
    # Without a datamodule, a test graph is named by its number.
    (unnamed,) = trainer(tmp_path).test(module, datamodule.test_dataloader()[:1], verbose=False)
    assert unnamed == {"test/0": clean["test/clean"]}


def test_a_checkpoint_is_read_into_a_model_and_runs_no_code(
    make_datamodule: Callable[..., Any], tmp_path: Path
) -> None:
    module = NodeClassification(Linear(), num_classes=7, learning_rate=0.5, weight_decay=0.25)
    bare = trainer(tmp_path, max_epochs=1)
    bare.fit(module, make_datamodule())
    bare.save_checkpoint(path := tmp_path / "module.ckpt")
    found = NodeClassification.load_from_checkpoint(path, model=Linear())
    (group,) = found.configure_optimizers().param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    for name, weight in found.state_dict().items():
        assert torch.equal(weight, module.state_dict()[name])
    torch.save({"state_dict": {}, "hyper_parameters": Linear()}, path)
    with pytest.raises(pickle.UnpicklingError):
        NodeClassification.load_from_checkpoint(path, model=Linear())
