"""A zoo of one small model, whose accuracies are its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robust_diffusion import Budget, fit, open_dataset
from robust_diffusion.attacks import RandomInjection
from robust_diffusion.data import GraphDataModule
from robust_diffusion.evaluation.evaluate_model import probed
from robust_diffusion.evaluation.zoo import Zoo, ZooEntry, build_recorded, write_index
from robust_diffusion.system.artifact import Artifact, write_artifact
from robust_diffusion.system.hashes import file_hash
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash
from tests.attacks.graphs import train

CONFIG = {
    "_target_": "robust_diffusion.models.GCN",
    "_partial_": True,
    "hidden_channels": 8,
    "num_layers": 2,
    "dropout": 0.0,
    "layer_norm": False,
}
BUDGET = Budget(5, 20, (-0.87, 0.87))


def trained(datamodule: GraphDataModule, epochs: int = 10, *, on_all: bool = False) -> nn.Module:
    torch.manual_seed(0)
    sizes = (datamodule.num_features, datamodule.num_classes)
    model = build_recorded(CONFIG, *sizes, where="test")
    if on_all:  # test nodes, too
        datamodule.setup()
        every = torch.arange(datamodule.graph.num_nodes)
        return train(model, datamodule.graph, every, epochs=50, learning_rate=0.01)
    fit(model, datamodule, max_epochs=epochs, accelerator="cpu")
    return model.eval()


def small_zoo(folder: Path, **changes: Any) -> Zoo:
    """GCN on the drawn graph, attacked by chance."""
    datamodule = open_dataset("synthetic")
    model = trained(datamodule)
    victim, task, _ = probed(model, datamodule, "test", None)
    generator = torch.Generator().manual_seed(0)
    graph = RandomInjection()(victim, task, BUDGET, generator)
    n = task.graph.num_nodes
    no_nodes = torch.zeros(0, dtype=torch.long)
    tensors = {
        "injected_x": graph.x[n:],
        "changed_nodes": no_nodes,
        "changed_x": graph.x[no_nodes],
        "edge_index": graph.edge_index,
    }
    files = {
        "file": write_artifact(folder / "model-gcn.safetensors", Artifact(model.state_dict())),
        "graph": write_artifact(folder / "graph-gcn.safetensors", Artifact(tensors)),
    }
    entry = ZooEntry(
        name="gcn",
        dataset="synthetic",
        variant="paper",
        seed=0,
        file=files["file"].name,
        sha256=file_hash(files["file"]),
        graph=files["graph"].name,
        graph_sha256=file_hash(files["graph"]),
        weights=state_hash(model.state_dict()),
        run="gcn-0",
        config=CONFIG,
        in_channels=datamodule.num_features,
        out_channels=datamodule.num_classes,
        clean_accuracy=task.accuracy(victim.predict(task.graph)),
        worst_accuracy=task.accuracy(victim.predict(graph)),
        attack="random",
        target_nodes=tensor_hash(task.targets),
    )
    write_index(folder, [replace(entry, **changes)])
    return Zoo.open(folder)
