"""First test of a defense: the most harmful known graphs, crafted on other models."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.attacks.base import clean_graph, undirected_edge_numbers
from robust_diffusion.checks import Seed, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.evaluate_model import Subject, subject_of
from robust_diffusion.evaluation.zoo import Zoo, ZooEntry
from robust_diffusion.models.checked import own_context
from robust_diffusion.system.tensor_hashes import tensor_hash


@validated("")
@own_context()
def unit_test(
    model: nn.Module,
    data: Data | GraphDataModule,
    dataset: str = "cora",
    *,
    nodes: Any = "test",
    seed: Seed = 0,
    device: str | torch.device | None = None,
    directory: str | Path | None = None,
) -> pd.DataFrame:
    """Accuracy of a model on the worst graph of each model of the zoo; nothing is attacked.

    A defence that falls here is broken by attacks that never saw it, in seconds. One that does not
    has shown nothing yet: attack it by `evaluate`.

    Args:
        model: Trained model (see `evaluate`).
        data: The clean graph that the zoo's graphs were made of (see `evaluate`).
        dataset: Its name in the zoo.
        nodes: Target nodes of the zoo's graphs; `test` suffices for a datamodule of `open_dataset`.
        seed: Of a model that samples.
        device: Where to run; `None` for where the model is.
        directory: Folder of the zoo (see `load_model`).

    Returns:
        A frame, the most harmful graph first: `made_on`, the model of the zoo; `attack`;
        `own_accuracy` that it left to that model, and `accuracy` that it leaves to this one, in
        0..1. The first row of all is the clean graph's, `made_on` "".

    Raises:
        ConfigError: The zoo has no graph of that dataset or attacks other nodes of it, or the model
            does not suit it.
        DataError: The zoo is missing or damaged, or its graphs are none of this clean graph.

    Examples:
        >>> from robust_diffusion import load_model, open_dataset, unit_test
        >>> frame = unit_test(load_model("gcn"), open_dataset("cora"))  # doctest: +SKIP
    """
    subject = subject_of(model, data, nodes, device, seed=seed)
    zoo = Zoo.open(directory)
    entries = [entry for entry in zoo.entries if entry.dataset == dataset]
    if not entries:
        known = ", ".join(sorted({entry.dataset for entry in zoo.entries}))
        raise ConfigError(f"unit_test: no graph of dataset={dataset}; there are {known or 'none'}")
    with subject.tried.ready():
        clean = subject.accuracy_on(subject.graph)
        rows = [
            {
                "made_on": entry.name,
                "attack": entry.attack,
                "own_accuracy": entry.worst_accuracy,
                "accuracy": subject.accuracy_on(_graph(zoo, entry, subject)),
            }
            for entry in entries
        ]
    first = {"made_on": "", "attack": "clean", "accuracy": clean}
    attacked = pd.DataFrame(rows).sort_values("accuracy", kind="stable")
    return pd.concat([pd.DataFrame([first]), attacked], ignore_index=True)


def _graph(zoo: Zoo, entry: ZooEntry, subject: Subject) -> PerturbedGraph:
    """The entry's worst graph, if it attacks the subject's target nodes of the same clean graph."""
    if entry.target_nodes != tensor_hash(subject.targets):
        raise ConfigError(
            f"nodes: expected the target nodes of the zoo's {entry.dataset} graphs, got "
            f"{len(subject.targets)} others; pass the datamodule open_dataset({entry.dataset!r}) "
            "as data, or its target_nodes as nodes"
        )
    graph, (x, edges) = zoo.worst_graph(entry, subject.graph), clean_graph(subject.graph)
    old = graph.edge_index[:, (graph.edge_index < len(x)).all(0)]
    numbers = [undirected_edge_numbers(index, len(x)) for index in (old, edges)]
    if graph.edge_index.max() >= len(graph.x) or not torch.equal(*numbers):
        raise DataError(
            f"data: has {numbers[1].numel()} edges, and the graph of {entry.key} is made of one of "
            f"{numbers[0].numel()}, or of others; hand over {entry.dataset} as it is"
        )
    return graph
