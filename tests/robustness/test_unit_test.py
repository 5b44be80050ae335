"""Accuracy on the worst graphs of a zoo."""

from pathlib import Path

from robust_diffusion import load_model, open_dataset, unit_test
from robust_diffusion.robustness.zoo import Zoo


def test_a_model_of_the_zoo_has_its_own_accuracy_on_its_own_graph(zoo_folder: Path) -> None:
    entry = Zoo.open(zoo_folder).entries[0]
    model = load_model("gcn", "synthetic", directory=zoo_folder).train()
    data = open_dataset("synthetic")
    found = unit_test(model, data, "synthetic", directory=zoo_folder)
    assert found["accuracy"].tolist() == [entry.clean_accuracy, entry.worst_accuracy]
    assert found["made_on"].tolist() == ["", "gcn"]
    assert model.training
