"""Accuracy on the worst graphs of a zoo."""

from pathlib import Path

import pytest
import torch

from robust_diffusion import load_model, open_dataset, unit_test
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.robustness.zoo import Zoo


def test_a_model_of_the_zoo_has_its_own_accuracy_on_its_own_graph(zoo_folder: Path) -> None:
    entry = Zoo.open(zoo_folder).entries[0]
    model = load_model("gcn", "synthetic", directory=zoo_folder).train()
    data = open_dataset("synthetic")
    found = unit_test(model, data, "synthetic", directory=zoo_folder)
    assert found["accuracy"].tolist() == [entry.clean_accuracy, entry.worst_accuracy]
    assert found["made_on"].tolist() == ["", "gcn"]
    assert model.training


def test_another_dataset_or_graph_is_refused(zoo_folder: Path) -> None:
    model = load_model("gcn", "synthetic", directory=zoo_folder)
    data = open_dataset("synthetic")
    with pytest.raises(ConfigError, match="dataset=cora"):
        unit_test(model, data, directory=zoo_folder)
    smaller = data.graph.subgraph(torch.arange(100))
    with pytest.raises(DataError):
        unit_test(model, smaller, "synthetic", nodes=[0, 1], directory=zoo_folder)
