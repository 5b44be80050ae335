"""The report of an evaluation in Python: a table, a data frame, a record, perturbed graphs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust_diffusion import __version__
from robust_diffusion.attacks import Budget, PerturbedGraph, SpentBudget
from robust_diffusion.attacks.base import Kind
from robust_diffusion.errors import ConfigError
from robust_diffusion.robustness.flags import Flag
from robust_diffusion.system.artifact import Artifact, write_artifact
from robust_diffusion.system.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

REPORT = "report.json"
"""Name of the report's own file."""

COUNTS = ("injected_nodes", "injected_edges", "flipped_edges", "changed_nodes")
"""Columns of a report's frame that say what an attack spent."""


@dataclass(frozen=True, eq=False)
class AttackReport:
    """One attack's effect on the evaluated model.

    Args:
        name: Of the attack, and after a slash the surrogate that it was made on, if any.
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

    @property
    def is_bound(self) -> bool:
        """True if nothing says that another attack would do more, or that the number is wrong."""
        return not self.flags and (not self.is_control or self.accuracy == 0)

    def record(self) -> dict[str, Any]:
        """All but the graph, as JSON."""
        keys = ("name", "kind", "accuracy", "is_control", "made_on", "is_bound")
        return {key: getattr(self, key) for key in keys} | {
            "flags": [asdict(flag) for flag in self.flags],
            "spent": asdict(self.spent),
            **self.effort,
            "reused": self.reused,
            "part": self.graph.part,
            "part_accuracy": dict(self.graph.part_accuracy),
        }


@dataclass(frozen=True, eq=False)
class RobustnessReport:
    """Result of `evaluate`: accuracy of a model under each attack, beside clean and chance.

    Args:
        model: Class of the evaluated model.
        clean_accuracy: At the target nodes of the clean graph, in 0..1.
        attacks: The control of each kind of attack first, then the attacks as they were named.
        budget: What each attack was allowed, feature limits resolved.
        num_targets: Nodes under attack.
        threat: white_box, adaptive or black_box.
        labels: Classes of the targets as the attacker took them: predicted or true; an attack of
            the worst case (`auto`) always takes the true ones.
        seed: Of all random choices.
        flags: Of the model on the clean graph.
        dataset: Name of the datamodule's dataset; "" of a graph of one's own.
        clean_graph: Hash of features, edges, classes and target nodes.
        weights: Hash of the model's weights, by which a zoo knows it.
        notes: What a reader should know of the model that is no flaw.

    Examples:
        >>> from robust_diffusion import MLP, Budget, evaluate
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> report = evaluate(MLP(8, 8, 7), data, budget=Budget(2, 3), attacks="random")
        >>> report.robust_accuracy == report.clean_accuracy  # an MLP sees no injected node
        True
    """

    model: str
    clean_accuracy: float
    attacks: Sequence[AttackReport]
    budget: Budget
    num_targets: int
    threat: str
    labels: str
    seed: int
    flags: Sequence[Flag] = field(default=())
    dataset: str = ""
    clean_graph: str = ""
    weights: str = ""
    notes: Sequence[str] = ()

    @property
    def worst(self) -> AttackReport:
        """The attack under which accuracy is lowest; of equals one that is a bound, if any is."""
        return min(
            self.attacks,
            key=lambda attack: (attack.accuracy, attack.is_control, not attack.is_bound),
        )

    @property
    def robust_accuracy(self) -> float:
        """The lowest accuracy under any attack, in 0..1."""
        return self.worst.accuracy

    @property
    def graph(self) -> PerturbedGraph:
        """The most harmful graph."""
        return self.worst.graph

    def __getitem__(self, name: str) -> AttackReport:
        """The attack of that name; a `ConfigError` if there is none."""
        for attack in self.attacks:
            if attack.name == name:
                return attack
        known = ", ".join(attack.name for attack in self.attacks)
        raise ConfigError(f"attack={name}: not in this report; use one of {known}")

    def to_frame(self) -> "pd.DataFrame":
        """One row for the clean graph and one per attack; accuracies in 0..1."""
        import pandas as pd

        frame = pd.DataFrame(
            {
                "attack": attack.name,
                "made_on": attack.made_on,
                "is_control": attack.is_control,
                "accuracy": attack.accuracy,
                "injected_nodes": attack.spent.injected_nodes,
                "injected_edges": attack.spent.injected_edges,
                "flipped_edges": attack.spent.added_edges + attack.spent.removed_edges,
                "changed_nodes": attack.spent.changed_nodes,
                "forwards": attack.effort["forwards"],
                "seconds": attack.effort["seconds"],
                "flags": _codes(attack.flags),
            }
            for attack in self.attacks
        )
        clean = {
            "attack": "clean",
            "made_on": "",
            "is_control": False,
            "seconds": 0.0,
            "forwards": 0,
        }
        clean |= {"accuracy": self.clean_accuracy, "flags": _codes(self.flags)}
        first = pd.DataFrame([clean | dict.fromkeys(COUNTS, 0)])
        return pd.concat([first[frame.columns], frame], ignore_index=True)

    def __str__(self) -> str:
        """The table of `to_frame`, accuracies in %, between lines that say of what."""
        frame = self.to_frame()
        shown = frame[["attack"]].copy()
        shown.loc[frame.is_control, "attack"] += " (control)"
        shown["accuracy %"] = [f"{100 * value:.2f}" for value in frame.accuracy]
        for count in COUNTS:
            if frame[count].any():
                shown[count.replace("_", " ")] = frame[count]
        shown["forwards"] = frame["forwards"]
        shown["seconds"] = [f"{value:.1f}" for value in frame.seconds]
        shown["flags"] = frame["flags"]
        labels = f"{self.labels} labels"
        title = f"{self.model}, {self.num_targets} target nodes, {self.threat}, {labels}"
        worst = f"worst: {self.worst.name}" + ("" if self.worst.is_bound else ", no bound")
        return "\n".join([title, shown.to_string(index=False), worst, *self.notes])

    def to_json(self) -> str:
        """The record: all but the graphs."""
        keys = ("threat", "labels", "seed", "dataset", "clean_graph", "weights", "num_targets")
        record = {
            "model": self.model,
            "clean_accuracy": self.clean_accuracy,
            "robust_accuracy": self.robust_accuracy,
            "attacks": [attack.record() for attack in self.attacks],
            "budget": asdict(self.budget),
            **{key: getattr(self, key) for key in keys},
            "flags": [asdict(flag) for flag in self.flags],
            "notes": list(self.notes),
            "version": __version__,
        }
        return json.dumps(record, indent=2, allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write `report.json` and one `graph-<attack>.safetensors` per attack into a folder.

        `Data.from_dict(safetensors.torch.load_file(file))` is the attacked graph again, and
        `robust-diffusion audit` counts what it spends.

        Returns:
            The folder.

        Raises:
            ConfigError: It cannot be written.
        """
        folder = Path(path)
        write_whole(folder / REPORT, self.to_json() + "\n", option="report.save")
        for attack in self.attacks:
            tensors = attack.graph.to_data().to_dict()
            about = {"attack": attack.name, "accuracy": attack.accuracy}
            write_artifact(folder / graph_file(attack.name), Artifact(tensors, about))
        return folder


def graph_file(attack: str) -> str:
    """Name of the file with an attack's graph, beside the report; two attacks never share one."""
    name = re.sub(r"[^\w.-]+", "-", attack)
    own = "" if name == attack else f"-{sha256(attack.encode()).hexdigest()[:8]}"
    return f"graph-{name}{own}.safetensors"


def _codes(flags: Sequence[Flag]) -> str:
    return ", ".join(flag.code for flag in flags)
