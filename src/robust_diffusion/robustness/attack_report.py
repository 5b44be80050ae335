"""The report of one attack, and the file of its graph."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph, SpentBudget
from robust_diffusion.attacks.base import Kind
from robust_diffusion.errors import DataError
from robust_diffusion.robustness.flags import Flag
from robust_diffusion.system.artifact import Artifact, read_artifact, write_artifact
from robust_diffusion.system.tensor_hashes import tensor_hash

IN_BOTH = {"attack": "name", "accuracy": "accuracy", "graph": "graph"}
"""What a graph's file says of itself, and the key of the report that says the same."""


@dataclass(frozen=True, eq=False)
class AttackReport:
    """One attack's effect on the evaluated model.

    Args:
        name: Name of the attack; after a slash, the surrogate that it was crafted on, if any.
        kind: injection or modification.
        accuracy: Of the evaluated model at the target nodes, in 0..1.
        is_control: Chance with the same budget, which every attack has to beat.
        made_on: Surrogate that the attack saw instead of the model; "" for the model itself.
        flags: Signs that the accuracy is no bound, the model's own included; see
            `robustness.flags`.
        spent: Budget used.
        effort: What it took, whenever it ran: `forwards` of the attacked model, `seconds` of wall
            time, and a `trace` of both and the accuracy in 0..1 at each new lowest.
        reused: Taken from the store.
        graph: The attacked graph.
        labels: Classes of the targets as the attack took them: predicted or true.

    Examples:
        >>> from robust_diffusion import MLP, Budget, evaluate
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> report = evaluate(MLP(8, 8, 7), data, budget=Budget(2, 3), attacks="random")
        >>> report["random"].is_control, report["random"].kind
        (True, 'injection')
    """

    name: str
    kind: Kind
    accuracy: float
    is_control: bool
    made_on: str
    flags: Sequence[Flag]
    spent: SpentBudget
    effort: Mapping[str, Any]
    reused: bool
    graph: PerturbedGraph
    labels: str = "predicted"

    def __repr__(self) -> str:
        """Name and accuracy, without the tensors of the graph."""
        return f"AttackReport({self.name}: {self.accuracy:.2%})"

    @property
    def is_bound(self) -> bool:
        """True if nothing says that another attack would do more, or that the number is wrong."""
        return not self.flags and (not self.is_control or self.accuracy == 0)

    def record(self) -> dict[str, Any]:
        """All but the graph, as JSON."""
        keys = ("name", "kind", "accuracy", "is_control", "made_on", "is_bound", "labels")
        return {key: getattr(self, key) for key in keys} | {
            "flags": [asdict(flag) for flag in self.flags],
            "spent": asdict(self.spent),
            **self.effort,
            "reused": self.reused,
            "graph": tensor_hash(self.graph.x, self.graph.edge_index),
            "part": self.graph.part,
            "part_accuracy": dict(self.graph.part_accuracy),
        }

    def write(self, folder: Path) -> None:
        """Write the graph into a folder, as safetensors."""
        about = {"attack": self.name, "accuracy": self.accuracy}
        tensors = self.graph.to_data().to_dict()
        write_artifact(folder / graph_file(self.name), Artifact(tensors, about))

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any], clean: Data) -> "AttackReport":
        """Return the report of a `record`, its graph read from a folder.

        Raises:
            DataError: The graph is missing, damaged, or not the one of the record.
        """
        path = folder / graph_file(record["name"])
        artifact = read_artifact(path)
        tensors = artifact.tensors
        there = artifact.metadata | {"graph": tensor_hash(tensors["x"], tensors["edge_index"])}
        if there != {key: record[of] for key, of in IN_BOTH.items()}:
            raise DataError(f"{path}: is not the graph of the report beside it; restore the file")
        graph = PerturbedGraph(
            tensors["x"],
            tensors["edge_index"],
            clean.num_nodes or 0,
            record["part_accuracy"],
            record["part"],
            clean=clean,
        )
        spent = record["spent"]
        if spent["feature_range"] is not None:  # JSON has no tuples
            spent = spent | {"feature_range": tuple(spent["feature_range"])}
        own = {"flags": [Flag(**flag) for flag in record["flags"]], "graph": graph}
        own["effort"] = {key: record[key] for key in ("forwards", "seconds", "trace")}
        given = {**record, **own, "spent": SpentBudget(**spent)}
        return cls(**{of.name: given[of.name] for of in fields(cls)})


def graph_file(attack: str) -> str:
    """Name of the file with an attack's graph, beside the report; two attacks never share one."""
    name = re.sub(r"[^\w.-]+", "-", attack)
    own = "" if name == attack else f"-{sha256(attack.encode()).hexdigest()[:8]}"
    return f"graph-{name}{own}.safetensors"
