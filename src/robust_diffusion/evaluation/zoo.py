"""The model zoo: trained models, their accuracies, and the most harmful graph for each."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hydra.utils import get_object
from pydantic import ValidationError
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph, Task, seeded
from robust_diffusion.attacks.audit import read_perturbed
from robust_diffusion.attacks.audit.check import GraphLike
from robust_diffusion.attacks.base import clean_graph, spent_budget, undirected_edge_numbers
from robust_diffusion.checks import Seed, named_path, validated
from robust_diffusion.config import PUBLISHED
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.evaluate_model import probed
from robust_diffusion.evaluation.graph_files import KnownGraph, graphs_in
from robust_diffusion.evaluation.load import build_model, load_weights
from robust_diffusion.models.modules import own_context
from robust_diffusion.records.schema import Schema, UnitShare, first_problem
from robust_diffusion.records.submission import FileName, Submission
from robust_diffusion.system.artifact import read_artifact
from robust_diffusion.system.files import write_whole
from robust_diffusion.system.hashes import file_hash
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

INDEX = "index.json"

MOST_BYTES = 2**26
"""Largest index that is read; an entry takes 2 kB."""

BUILT_OF = (
    "robust_diffusion.models",
    "robust_diffusion.flows",
    "robust_diffusion.integrators.solver",
)
"""Packages whose classes a model's configuration may name."""


@dataclass(frozen=True)
class ZooEntry:
    """One trained model."""

    name: str  # of the model, or of its flow
    dataset: str  # dataset of the training
    variant: str  # of its equations: paper or released
    seed: int  # of its training and of the attacks
    file: FileName  # its weights, in the folder of the index
    sha256: str
    graph: FileName  # the most harmful attacked graph, and its hash
    graph_sha256: str
    weights: str  # hash of the weights, which identifies the model in a report
    run: str  # id of the published record of the most harmful attack
    config: Mapping[str, Any]  # resolved configuration of the model
    in_channels: int
    out_channels: int
    clean_accuracy: UnitShare  # at the target nodes of the clean graph, in 0..1
    worst_accuracy: UnitShare  # the same under that attack
    attack: str  # in words
    target_nodes: str = ""  # hash of the target nodes; "" in an older zoo
    submissions: Sequence[Submission] = ()  # graphs by others that lowered an accuracy

    @property
    def key(self) -> str:
        """Name, dataset and variant in one word."""
        return f"{self.name}-{self.dataset}-{self.variant}"


class _Index(Schema):
    entries: list[ZooEntry]


@dataclass(frozen=True)
class Zoo:
    """A folder of trained models."""

    directory: Path
    entries: Sequence[ZooEntry]

    @classmethod
    def open(cls, directory: str | Path | None = None) -> "Zoo":
        """Read the index of a zoo; by default `ROBUST_DIFFUSION_ZOO`, or the published zoo."""
        folder = directory or os.environ.get("ROBUST_DIFFUSION_ZOO") or PUBLISHED / "zoo"
        path = Path(folder) / INDEX
        try:
            if path.exists() and not (path.is_file() and path.stat().st_size <= MOST_BYTES):
                raise DataError(
                    f"{path}: expected a file of at most {MOST_BYTES:,} bytes; check the folder"
                )
            index = _Index.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise DataError(
                f"{path}: not found; give the folder of a zoo by directory=, or by the environment "
                "variable ROBUST_DIFFUSION_ZOO"
            ) from error
        except ValidationError as error:
            raise DataError(f"{path}: is no index of a zoo ({first_problem(error)})") from error
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        return cls(path.parent, index.entries)

    def find(self, name: str, dataset: str, variant: str) -> ZooEntry:
        """Return the entry of that name; raise a `ConfigError` that lists all if there is none."""
        for entry in self.entries:
            if (entry.name, entry.dataset, entry.variant) == (name, dataset, variant):
                return entry
        known = "; ".join(f"{e.name} on {e.dataset}, {e.variant}" for e in self.entries)
        raise ConfigError(
            f"load_model: no {name} on {dataset}, {variant}, in {self.directory}; there is "
            f"{known or 'nothing'}"
        )

    def load(self, entry: ZooEntry) -> nn.Module:
        """Load the trained model, in eval mode, on the CPU."""
        tensors = read_artifact(self._verified(entry.file, entry.sha256)).tensors
        model = build_recorded(entry.config, entry.in_channels, entry.out_channels, where=entry.key)
        load_weights(model, tensors, where=self.directory / entry.file)
        if state_hash(model.state_dict()) != entry.weights:
            raise DataError(f"{self.directory / INDEX}: {entry.key} has other weights than it says")
        return model.eval()

    def worst_graph(self, entry: ZooEntry, clean: GraphLike) -> PerturbedGraph:
        """Read the attacked graph with the lowest accuracy of the entry."""
        return self._graph(entry.graph, entry.graph_sha256, clean)

    def submitted_graph(self, submission: Submission, clean: GraphLike) -> PerturbedGraph:
        """Read a graph that somebody submitted."""
        return self._graph(submission.graph, submission.graph_sha256, clean)

    def _graph(self, name: str, sha256: str, clean: GraphLike) -> PerturbedGraph:
        assert clean.x is not None
        read = read_perturbed(self._verified(name, sha256), clean)
        return PerturbedGraph(read.x, read.edge_index, clean.x.size(0))

    def _verified(self, name: str, sha256: str) -> Path:
        path = self.directory / name
        try:
            digest = file_hash(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); get it again") from error
        if digest != sha256:
            raise DataError(
                f"{path}: has SHA-256 {digest[:16]}..., and the index says {sha256[:16]}...; get "
                "it again"
            )
        return path


def load_model(
    name: str,
    dataset: str = "cora",
    variant: str = "paper",
    *,
    directory: str | Path | None = None,
) -> nn.Module:
    """Load a trained model of the zoo, without executing any code in its file.

    Args:
        name: Name of the model or its flow, such as beltrami, gcn or gnn_guard.
        dataset: Dataset that the model was trained on.
        variant: Variant of its equations: paper or released.
        directory: Folder of the zoo; `None` for `ROBUST_DIFFUSION_ZOO`, or the published zoo if
            that is not set.

    Returns:
        The module, in eval mode, on the CPU.

    Raises:
        ConfigError: There is no such model; the message lists the available ones.
        DataError: The zoo is missing, or damaged.

    Examples:
        >>> from robust_diffusion import load_model
        >>> type(load_model("beltrami", "cora")).__name__
        'GraphPDE'
    """
    zoo = Zoo.open(directory)
    return zoo.load(zoo.find(name, dataset, variant))


def build_recorded(
    config: Mapping[str, Any], in_channels: int, out_channels: int, *, where: str
) -> nn.Module:
    """Build an untrained model from a recorded configuration that only names package classes."""
    _check_config(config, where)
    try:
        with seeded(0):  # leaves the caller's random state unchanged
            return build_model(config, in_channels, out_channels)
    except ConfigError as error:
        raise DataError(f"{where}: {error}") from error


def write_index(directory: Path, entries: Sequence[ZooEntry]) -> Path:
    """Write the index of a zoo, entries by name."""
    listed = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.key)]
    text = json.dumps({"entries": listed}, indent=1, allow_nan=False, sort_keys=True) + "\n"
    return write_whole(directory / INDEX, text, option="zoo")


def _check_config(node: Any, where: str) -> None:
    """Raise a `DataError` if a configuration calls other classes or is not resolved."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            _check_target(node["_target_"], where)
        _check_config([*node, *node.values()], where)
    elif isinstance(node, list):
        for value in node:
            _check_config(value, where)
    elif isinstance(node, str) and "${" in node:
        raise DataError(f"{where}: its configuration is not resolved ({node}); it is not used")


def _check_target(target: Any, where: str) -> None:
    obj = None
    if isinstance(target, str) and target.startswith("robust_diffusion."):
        with suppress(Exception):  # Hydra's search may raise anything
            obj = get_object(target)
    # Checking the name is not enough: a module of the package also exposes its imports, such as os.
    if not isinstance(obj, type) or not obj.__module__.startswith(BUILT_OF):
        raise DataError(
            f"{where}: its configuration names {target}, which is no model, flow or solver of this "
            "version of robust_diffusion; it is not used"
        )


class UnitTestFrame(pd.DataFrame):
    """Result of `unit_test`; it prints every column, however narrow the terminal."""

    def __repr__(self) -> str:
        return self.to_string()


@validated("")
@own_context()
def unit_test(
    model: nn.Module,
    data: Data | GraphDataModule,
    dataset: str = "cora",
    *,
    targets: Any = "test",
    seed: Seed = 0,
    device: str | torch.device | None = None,
    directory: str | Path | None = None,
    graphs: str | Path | None = None,
) -> pd.DataFrame:
    """Test a model on attacked graphs from the zoo or a file, which were crafted on other models.

    The test takes seconds and runs no attack. If a defence fails, it is broken by attacks that
    never saw it. If it passes, that shows little: attack it with `evaluate`.

    Args:
        model: Trained model (see `evaluate`).
        data: The clean graph that the zoo's attacks started from (see `evaluate`).
        dataset: Name of the graph in the zoo.
        targets: Targets of the zoo's graphs; `test` suffices for a datamodule of `open_dataset`.
        seed: Seed for a model that samples.
        device: Device to run on; `None` for the model's device.
        directory: Folder of the zoo (see `load_model`).
        graphs: File or folder to read instead of the zoo: `unit_test.npz` of arXiv:2301.13694, of
            which the evasion perturbations of the split with these target nodes are used; a file
            `*adj*.npz` or `*adj*.pkl` of GRB or DeepRobust; or a folder of these, or of a saved
            report, without its random control.

    Returns:
        A frame with the most harmful graph first, after a first row for the clean graph with
        `made_on` "". The columns are `made_on`, the model that the graph was crafted on; `attack`;
        `own_accuracy` of that model, if known; `accuracy` of this model, both in 0..1; and `flips`,
        the number of edges added or removed, those of injected nodes included.

    Raises:
        ConfigError: The zoo has no graph of that dataset or other target nodes, or the model does
            not fit the graph.
        DataError: The zoo is missing or damaged, or its graphs belong to another clean graph.

    Examples:
        >>> from robust_diffusion import load_model, open_dataset
        >>> from robust_diffusion.evaluation import unit_test
        >>> frame = unit_test(load_model("gcn"), open_dataset("cora"))  # doctest: +SKIP
    """
    victim, task, _ = probed(model, data, targets, device, seed=seed)
    if graphs is None:
        known = _graphs_of_zoo(Zoo.open(directory), dataset, task)
    else:
        known = graphs_in(named_path("graphs", graphs), task)
    with victim:
        clean = task.accuracy(victim.clean_predictions(seed))
        rows: list[tuple[Any, ...]] = [("", "clean", np.nan, clean, 0)]
        for *origin, graph in known:
            spent = spent_budget(task.graph, graph)
            flips = spent.added_edges + spent.removed_edges + spent.injected_edges
            rows.append((*origin, task.accuracy(victim.predict(graph, seed)), flips))
    frame = pd.DataFrame(rows, columns=["made_on", "attack", "own_accuracy", "accuracy", "flips"])
    attacked = frame[1:].sort_values("accuracy", kind="stable")
    frame = pd.concat([frame[:1], attacked], ignore_index=True).dropna(axis=1, how="all")
    return UnitTestFrame(frame)


def _graphs_of_zoo(zoo: Zoo, dataset: str, task: Task) -> Iterator[KnownGraph]:
    """Yield the worst graph of each model of the zoo."""
    entries = [entry for entry in zoo.entries if entry.dataset == dataset]
    if not entries:
        known = ", ".join(sorted({entry.dataset for entry in zoo.entries}))
        raise ConfigError(f"unit_test: no graph of dataset={dataset}; there are {known or 'none'}")
    for entry in entries:
        yield entry.name, entry.attack, entry.worst_accuracy, _graph(zoo, entry, task)


def _graph(zoo: Zoo, entry: ZooEntry, task: Task) -> PerturbedGraph:
    """Read the entry's worst graph, checking that it has the same clean graph and target nodes."""
    if entry.target_nodes != tensor_hash(task.targets):
        raise ConfigError(
            f"targets: expected the target nodes of the zoo's {entry.dataset} graphs, got "
            f"{len(task.targets)} others; pass the datamodule open_dataset({entry.dataset!r}) "
            "as data, or its target_nodes as targets"
        )
    graph, (x, edges) = zoo.worst_graph(entry, task.graph), clean_graph(task.graph)
    old = graph.edge_index[:, (graph.edge_index < len(x)).all(0)]
    numbers = [undirected_edge_numbers(index, len(x)) for index in (old, edges)]
    if graph.edge_index.max() >= len(graph.x) or not torch.equal(*numbers):
        raise DataError(
            f"data: has {numbers[1].numel()} edges, and the graph of {entry.key} is made of one of "
            f"{numbers[0].numel()}, or of others; hand over {entry.dataset} as it is"
        )
    return graph
