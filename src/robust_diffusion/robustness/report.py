"""The report of an evaluation in Python: a table, a data frame, a record, perturbed graphs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from torch_geometric.data import Data

from robust_diffusion import __version__
from robust_diffusion.attacks import Budget, PerturbedGraph
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.robustness.attack_report import AttackReport as AttackReport
from robust_diffusion.robustness.effort import plot_traces
from robust_diffusion.robustness.flags import Flag
from robust_diffusion.robustness.saved_report import REPORT, read_claims
from robust_diffusion.robustness.subject import graph_hash
from robust_diffusion.system.artifact import Artifact, read_artifact, write_artifact
from robust_diffusion.system.files import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

CLEAN = "clean.safetensors"
"""Name of the file of the clean graph."""

FEW = 500
"""Targets below which an accuracy is shown with its interval."""

COUNTS = ("injected_nodes", "injected_edges", "flipped_edges", "changed_nodes")
"""Columns of a report's frame that say what an attack spent."""


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
        clean: The clean graph as the model saw it, with the nodes under attack as `target_nodes`.

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
    clean: Data | None = None

    def __repr__(self) -> str:
        """Model, clean accuracy and worst case in a line; `print` shows the table."""
        worst = f"{self.worst.name}: {self.robust_accuracy:.2%}"
        return f"RobustnessReport({self.model}, clean: {self.clean_accuracy:.2%}, {worst})"

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
        """The table of `to_frame`, accuracies in %, between lines that say of what.

        Few targets tell little of others: below `FEW` of them, 95 % intervals say how little.
        """
        frame = self.to_frame()
        shown = frame[["attack"]].copy()
        shown.loc[frame.is_control, "attack"] += " (control)"
        shown["accuracy %"] = [f"{100 * value:.2f}" for value in frame.accuracy]
        if self.num_targets < FEW:
            shown["95 % interval"] = [interval(value, self.num_targets) for value in frame.accuracy]
        for count in COUNTS:
            if frame[count].any():
                shown[count.replace("_", " ")] = frame[count]
        shown["forwards"] = frame["forwards"]
        shown["seconds"] = [f"{value:.1f}" for value in frame.seconds]
        shown["flags"] = frame["flags"]
        title = f"{self.model}, {self.num_targets} target nodes, {self.threat}, {self._labels()}"
        worst = f"worst: {self.worst.name}" + ("" if self.worst.is_bound else ", no bound")
        table = shown.to_string(index=False)
        return "\n".join([title, f"allowed: {self._allowed()}", table, worst, *self.notes])

    def _labels(self) -> str:
        """Classes that the attacks went by, controls apart, which go by none."""
        told: dict[str, list[str]] = {}
        for attack in self.attacks:
            if not attack.is_control:
                told.setdefault(attack.labels, []).append(attack.name)
        if len(told) < 2:
            return f"{next(iter(told), self.labels)} labels"
        return ", ".join(f"{labels} labels: {' '.join(names)}" for labels, names in told.items())

    def _allowed(self) -> str:
        """The budget, as far as the kinds of attacks read it."""
        of, kinds = self.budget, {attack.kind for attack in self.attacks}
        limits = []
        if "injection" in kinds:
            limits.append(
                f"{of.max_injected_nodes} nodes of {of.max_edges_per_injected_node} edges"
            )
            if of.max_injected_edges is not None:
                limits.append(f"{of.max_injected_edges} injected edges in all")
        if "modification" in kinds:
            limits.append(f"flips of {100 * of.edge_ratio:g} % of the edges at targets")
            if of.node_ratio:
                limits.append(f"features of {100 * of.node_ratio:g} % moved by {of.epsilon:g}")
        return ", ".join(limits)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Lowest accuracy in % that each attack had met, against its forward passes.

        By Matplotlib (`pip install 'robust-diffusion[report]'`).

        Args:
            ax: Where to draw; `None` for a new figure.
        """
        if ax is None:
            try:
                from matplotlib import pyplot as plt
            except ModuleNotFoundError as error:
                remedy = "pip install 'robust-diffusion[report]'"
                raise ConfigError(f"report.plot: needs Matplotlib; {remedy}") from error
            ax = plt.subplots(layout="constrained")[1]
        plot_traces({attack.name: attack.effort for attack in self.attacks}, ax)
        return ax

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
        """Write `report.json`, the clean and the attacked graphs into a folder, as safetensors.

        `load` reads it again, and `robust-diffusion audit` counts on the graphs what was spent.
        `Data.from_dict(safetensors.torch.load_file(file))` is one of them as PyG has it.

        Returns:
            The folder.

        Raises:
            ConfigError: It cannot be written.
        """
        folder = Path(path)
        write_whole(folder / REPORT, self.to_json() + "\n", option="report.save")
        for attack in self.attacks:
            attack.write(folder)
        if self.clean is not None:
            about = {"clean_graph": self.clean_graph}
            write_artifact(folder / CLEAN, Artifact(self.clean.to_dict(), about))
        return folder

    @classmethod
    def load(cls, path: str | Path) -> "RobustnessReport":
        """Read a folder that `save` has written; nothing in it is run.

        Raises:
            DataError: A file is missing or damaged, a value is out of range, or a graph is not the
                report's.
        """
        folder = Path(path)
        claims = read_claims(folder)
        record = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        clean = _clean(folder, claims.clean_graph)
        if (count := len(clean.target_nodes)) != (said := claims.num_targets):
            raise DataError(f"{folder / REPORT}: num_targets: expected {count}, got {said}")
        try:
            record |= {
                "attacks": [AttackReport.read(folder, of, clean) for of in record["attacks"]],
                "budget": claims.budget,
                "flags": claims.flags,
                "clean": clean,
            }
            return cls(**{of.name: record[of.name] for of in fields(cls)})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{folder / REPORT}: not a report of this version ({error}); run evaluate again"
            ) from error


def _clean(folder: Path, fingerprint: str) -> Data:
    """The clean graph of a report, if its hash is the report's."""
    graph = Data.from_dict(read_artifact(folder / CLEAN).tensors)
    if graph_hash(graph, graph["target_nodes"]) != fingerprint:
        raise DataError(f"{folder / CLEAN}: is not the clean graph of the report beside it")
    return graph


def interval(accuracy: float, count: int) -> str:
    """Wilson's 95 % interval, in %, of an accuracy on so many nodes drawn from many."""
    from scipy.stats import binomtest  # late: it takes a quarter of a second

    found = binomtest(round(accuracy * count), count).proportion_ci(method="wilson")
    return f"{100 * found.low:.1f} .. {100 * found.high:.1f}"


def _codes(flags: Sequence[Flag]) -> str:
    return ", ".join(flag.code for flag in flags)
