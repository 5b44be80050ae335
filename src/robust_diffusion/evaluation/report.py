"""Report of an evaluation in Python, with its table, data frame, JSON and perturbed graphs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError
from torch_geometric.data import Data

from robust_diffusion import __version__
from robust_diffusion.attacks import Budget, PerturbedGraph, SpentBudget
from robust_diffusion.attacks.base import GivenUp, Kind
from robust_diffusion.attacks.task import Knowledge
from robust_diffusion.checks import Share, check_value
from robust_diffusion.data.validate import checked_graph, node_index
from robust_diffusion.errors import ConfigError, DataError, needs_extra
from robust_diffusion.evaluation.flag_codes import OF_THE_NUMBER, remedy_of
from robust_diffusion.evaluation.flags import Flag, graph_hash
from robust_diffusion.evaluation.measure import unfit
from robust_diffusion.evaluation.threat import ThreatName
from robust_diffusion.records.schema import Schema, UnitShare, first_problem
from robust_diffusion.system.artifact import Artifact, read_artifact, write_artifact
from robust_diffusion.system.files import read_limited, write_whole
from robust_diffusion.system.markdown import markdown_table
from robust_diffusion.system.numbers import Estimate
from robust_diffusion.system.tensor_hashes import tensor_hash

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

REPORT = "report.json"
"""Name of the file with everything except the graphs."""

LARGEST = 10_000_000
"""Largest size of that file, in bytes."""

_CLEAN = "clean.safetensors"
"""Name of the file with the clean graph."""

_FEW = 500
"""Targets below which an accuracy is shown with its interval."""

_COUNTS = ("injected_nodes", "injected_edges", "flipped_edges", "changed_nodes")
"""Columns of a report's frame with the budget that an attack spent."""


Text = Annotated[str, Field(max_length=200)]


@dataclass(frozen=True, eq=False)
class AttackReport:
    """One attack's effect on the evaluated model.

    Args:
        name: Name of the attack; after a slash, the surrogate that it was crafted on, if any.
        kind: injection or modification.
        accuracy: Accuracy of the evaluated model at the target nodes, in 0..1.
        is_control: Whether this is the random control, which every attack has to beat.
        made_on: Surrogate that the attack was crafted on; "" for the model itself.
        flags: Reasons not to read the accuracy as a bound, for any attack seed, including those of
            the model; see `evaluation.flags`.
        spent: Budget used.
        effort: Cost of the original computation: `forwards` of the attacked model, `seconds` of
            wall time, and a `trace` of both with the accuracy in 0..1 at each new lowest.
        reused: Whether the graph came from the cache.
        graph: The attacked graph.
        attacker_knows: Classes of the targets that the attack used: predictions or labels.
        by_seed: Accuracy for each attack seed, starting with that of the report; empty for one
            seed.

    Examples:
        >>> from robust_diffusion import Budget, evaluate
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = MLP(8, 8, out_channels=7)
        >>> report = evaluate(model, data, budget=Budget(2, 3), attacks="random")
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
    attacker_knows: Knowledge = "predictions"
    by_seed: Sequence[float] = ()

    def __repr__(self) -> str:
        """Show name and accuracy, without the tensors of the graph."""
        return f"AttackReport({self.name}: {self.accuracy:.2%}{self._over_seeds()})"

    @property
    def seed_interval(self) -> tuple[float, float, float]:
        """Mean accuracy over attack seeds, and its 95 % interval by Student's t, in 0..1.

        Raises:
            ConfigError: There are fewer than two attack seeds.
        """
        if len(self.by_seed) < 2:
            raise ConfigError("seeds: expected at least 2 for an interval; use evaluate(seeds=5)")
        estimate = Estimate.of(self.by_seed)
        low, high = estimate.interval
        return estimate.effect, max(0.0, low), min(1.0, high)

    def _over_seeds(self) -> str:
        if not self.by_seed:
            return ""
        mean, low, high = (100 * value for value in self.seed_interval)
        return f"; {len(self.by_seed)} seeds: {mean:.2f} ({low:.1f} .. {high:.1f})"

    def _may_be_weak(self) -> list[Flag]:
        """Return flags that only count for ensembles, if the attack is not an ensemble.

        Only ensembles claim to estimate the worst case.
        """
        claims = bool(self.graph.part_accuracy)
        return [flag for flag in self.flags if not claims and flag.code not in OF_THE_NUMBER]

    @property
    def is_bound(self) -> bool:
        """True if no flag puts the accuracy in doubt; a control is only a bound at accuracy 0."""
        return not self.flags and (not self.is_control or self.accuracy == 0)

    def record(self) -> dict[str, Any]:
        """Return everything except the graph, as JSON."""
        keys = ("name", "kind", "accuracy", "is_control", "made_on", "is_bound", "attacker_knows")
        return {key: getattr(self, key) for key in keys} | {
            "by_seed": list(self.by_seed),
            "flags": [asdict(flag) for flag in self.flags],
            "spent": asdict(self.spent),
            **self.effort,
            "reused": self.reused,
            "graph": tensor_hash(self.graph.x, self.graph.edge_index),
            "part": self.graph.part,
            "part_accuracy": dict(self.graph.part_accuracy),
            "given_up": dict(self.graph.given_up),
        }

    def write(self, folder: Path) -> None:
        """Write the graph into a folder, as safetensors."""
        about = {"attack": self.name, "accuracy": self.accuracy}
        tensors = self.graph.to_data().to_dict()
        write_artifact(folder / graph_file(self.name), Artifact(tensors, about))

    @classmethod
    def read(cls, folder: Path, saved: "SavedAttack", clean: Data) -> "AttackReport":
        """Restore an attack's report from its entry in `report.json` and the graph in the folder.

        Raises:
            DataError: The graph is missing, damaged, or does not belong to the report.
        """
        path = folder / graph_file(saved.name)
        artifact = read_artifact(path)
        tensors = [artifact.tensors[key] for key in ("x", "edge_index") if key in artifact.tensors]
        expected = {"attack": saved.name, "accuracy": saved.accuracy}
        if (artifact.metadata, tensor_hash(*tensors)) != (expected, saved.graph) or len(
            tensors
        ) < 2:
            raise DataError(f"{path}: is not the graph of the report beside it; restore the file")
        x, edge_index = tensors
        parts = saved.part_accuracy, saved.part, saved.given_up
        graph = PerturbedGraph(x, edge_index, clean.num_nodes or 0, *parts, clean=clean)
        if wrong := unfit(graph, clean["x"]):
            raise DataError(f"{path}: holds {wrong}")
        effort = {key: getattr(saved, key) for key in ("forwards", "seconds", "trace")}
        contents: dict[str, Any] = vars(saved) | {"graph": graph, "effort": effort}
        return cls(**{field.name: contents[field.name] for field in fields(cls)})


@dataclass(frozen=True, eq=False)
class RobustnessReport:
    """Result of `evaluate`: accuracy of a model on the clean graph and under each attack.

    Args:
        model: Class of the evaluated model.
        clean_accuracy: Accuracy at the target nodes of the clean graph, in 0..1.
        attacks: The control of each kind of attack, then the attacks in the order of the call.
        budget: Limits of each attack, with resolved feature limits.
        num_targets: Number of target nodes.
        threat: white_box, adaptive or black_box.
        attacker_knows: Classes of the targets that the attacker used: predictions or labels. A
            worst-case attack (`auto`) always uses the labels.
        seed: Seed of all random choices.
        flags: Flags of the model on the clean graph.
        dataset: Name of the datamodule's dataset; "" for a custom graph.
        clean_graph: Hash of features, edges, classes and target nodes.
        weights: Hash of the model's weights, which identifies it in a zoo.
        notes: Remarks on the model that are not flags.
        clean: The clean graph that the model saw, with its target nodes as `target_nodes`.

    Examples:
        >>> from robust_diffusion import Budget, evaluate
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = MLP(8, 8, out_channels=7)
        >>> report = evaluate(model, data, budget=Budget(2, 3), attacks="random")
        >>> report.robust_accuracy == report.clean_accuracy  # an MLP sees no injected node
        True
    """

    model: str
    clean_accuracy: float
    attacks: Sequence[AttackReport]
    budget: Budget
    num_targets: int
    threat: ThreatName
    attacker_knows: Knowledge
    seed: int
    flags: Sequence[Flag] = field(default=())
    dataset: str = ""
    clean_graph: str = ""
    weights: str = ""
    notes: Sequence[str] = ()
    clean: Data = field(kw_only=True)

    def __repr__(self) -> str:
        """Show model, clean accuracy and worst case in a line; `print` shows the table."""
        worst = f"{self.worst.name}: {self.robust_accuracy:.2%}{self.worst._over_seeds()}"
        return f"RobustnessReport({self.model}, clean: {self.clean_accuracy:.2%}, {worst})"

    @property
    def worst(self) -> AttackReport:
        """The attack with the lowest accuracy; among ties, preferably one that is a bound."""
        return min(
            self.attacks,
            key=lambda attack: (attack.accuracy, attack.is_control, not attack.is_bound),
        )

    @property
    def robust_accuracy(self) -> float:
        """The lowest accuracy on the clean graph or under any attack, in 0..1.

        Every budget allows no change, so this is never above the clean accuracy.
        """
        return min(self.clean_accuracy, self.worst.accuracy)

    @property
    def graph(self) -> PerturbedGraph:
        """The most harmful graph."""
        return self.worst.graph

    def __getitem__(self, name: str) -> AttackReport:
        """Return the attack of that name; raise a `ConfigError` if there is none."""
        for attack in self.attacks:
            if attack.name == name:
                return attack
        known = ", ".join(attack.name for attack in self.attacks)
        raise ConfigError(f"attack={name}: not in this report; use one of {known}")

    def __contains__(self, name: object) -> bool:
        return any(attack.name == name for attack in self.attacks)

    def __iter__(self) -> Iterator[AttackReport]:
        return iter(self.attacks)

    def __len__(self) -> int:
        return len(self.attacks)

    def to_frame(self) -> "pd.DataFrame":
        """Return a frame with one row for the clean graph and one per attack; shares in 0..1."""
        import pandas as pd

        clean = {"attack": "clean", "made_on": "", "is_control": False}
        clean |= {"accuracy": self.clean_accuracy, **dict.fromkeys(_COUNTS, 0)}
        rows = [clean | {"forwards": 0, "seconds": 0.0, "flags": _codes(self.flags)}]
        for attack in self.attacks:
            row = {key: getattr(attack, key) for key in ("made_on", "is_control", "accuracy")}
            spent = attack.spent
            flipped = spent.added_edges + spent.removed_edges
            counts = spent.injected_nodes, spent.injected_edges, flipped, spent.changed_nodes
            cost = {key: attack.effort[key] for key in ("forwards", "seconds")}
            row |= dict(zip(_COUNTS, counts, strict=True)) | cost
            rows.append({"attack": attack.name, **row, "flags": _codes(attack.flags)})
        return pd.DataFrame(rows)

    def _table(self) -> "pd.DataFrame":
        """Return the table of `to_frame` as text, accuracies in %.

        It has 95 % intervals if there are fewer than `_FEW` targets, which generalise poorly.
        """
        frame = self.to_frame()
        shown = frame[["attack"]].copy()
        shown.loc[frame.is_control, "attack"] += " (control)"
        shown["accuracy %"] = [f"{100 * value:.2f}" for value in frame.accuracy]
        if self.num_targets < _FEW:
            shown["95 % interval"] = [interval(value, self.num_targets) for value in frame.accuracy]
        if seeds := len(self.worst.by_seed):
            over = [attack._over_seeds().partition(": ")[2] for attack in self.attacks]
            shown[f"over {seeds} seeds"] = ["", *over]
        for count in _COUNTS:
            if frame[count].any():
                shown[count.replace("_", " ")] = frame[count]
        shown["forwards"] = frame["forwards"]
        shown["seconds"] = [f"{value:.1f}" for value in frame.seconds]
        flags = [[flag for flag in a.flags if flag not in a._may_be_weak()] for a in self.attacks]
        shown["flags"] = list(map(_codes, [self.flags, *flags]))
        return shown

    def _around(self, table: str) -> str:
        """Return a table between a header with the setting and a footer with the worst case."""
        title = f"{self.model}, {self.num_targets} target nodes, {self.threat}, {self._known()}"
        lines = [title, f"allowed: {self._allowed()}", table, self._worst(), *self._flag_lines()]
        return "\n".join([*lines, *self.notes])

    def _worst(self) -> str:
        """Describe the worst case, and why it is not a bound, if it is not."""
        worst = self.worst
        text = f"worst: {worst.name}, {100 * worst.accuracy:.2f} %"
        if worst.is_bound:
            return text
        reason = "it has a flag" if worst.flags else "no attack does more harm than the control"
        return f"{text}; not a bound, since {reason}"

    def _flag_lines(self) -> list[str]:
        """Return a line per flag: the attacks that it concerns, what was seen, and what to do."""
        names: dict[tuple[str, str], list[str]] = {}
        details: dict[tuple[str, str], str] = {}
        of_model = [flag for flag in self.flags if flag.code in OF_THE_NUMBER]
        for name, flags, weak in [
            ("clean", of_model, ()),
            *((attack.name, attack.flags, attack._may_be_weak()) for attack in self.attacks),
        ]:
            for flag in flags:
                key = "may be weak" if flag in weak else "in doubt", flag.code
                names[key] = [*dict.fromkeys([*names.get(key, []), name])]
                details.setdefault(key, flag.detail)
        return [
            f"{kind}: {', '.join(names[kind, code])}: {code}: {detail} (to do: {remedy_of(code)})"
            for (kind, code), detail in details.items()
        ]

    def __str__(self) -> str:
        return self._around(self._table().to_string(index=False))

    def to_markdown(self) -> str:
        """Return the table of `print(report)` as Markdown."""
        table = self._table()
        return self._around(f"\n{markdown_table(table, ['attack', 'flags'])}\n")

    def _repr_html_(self) -> str:
        lines = self._around("\n").split("\n\n")
        before, after = (escape(text).strip().replace("\n", "<br>") for text in lines)
        return f"<p>{before}</p>{self._table().to_html(index=False)}<p>{after}</p>"

    def _known(self) -> str:
        """Describe the classes that the attacks used; controls use none."""
        groups: dict[str, list[str]] = {}
        for attack in self.attacks:
            if not attack.is_control:
                groups.setdefault(attack.attacker_knows, []).append(attack.name)
        if len(groups) < 2:
            return f"attacker knows {next(iter(groups), self.attacker_knows)}"
        by_name = (f"{known} ({' '.join(names)})" for known, names in groups.items())
        return f"attacker knows {', '.join(by_name)}"

    def _allowed(self) -> str:
        """Describe the part of the budget that applies to the kinds of attacks run."""
        budget, kinds = self.budget, {attack.kind for attack in self.attacks}
        within, limits = "", []
        if budget.feature_limits is not None:
            within = "{:.4g} to {:.4g}".format(*budget.limits)
        if "injection" in kinds:
            limits.append(
                f"{budget.max_injected_nodes} injected nodes of "
                f"{budget.max_edges_per_injected_node} edges each"
            )
            if budget.max_injected_edges is not None:
                limits.append(f"{budget.max_injected_edges} injected edges in all")
            if budget.form:
                limits.append(budget.form)
            elif budget.feature_limits is not None:
                limits.append(f"features {within}")
        if "modification" in kinds:
            limits.append(f"flips of {100 * budget.edge_ratio:g} % of the edges at targets")
            if ratio := budget.node_ratio:
                limits.append(
                    f"features of {100 * ratio:g} % moved by {budget.epsilon:g}"
                    + (f", within {within}" if within else "")
                )
        return ", ".join(limits)

    def plot(self, ax: "Axes | None" = None, *, mlp: float | None = None) -> "Axes":
        """Draw the accuracy in % on the clean graph and under each attack, as bars.

        Needs Matplotlib (`pip install 'robust-diffusion[report]'`). Each bar has its value and the
        95 % interval (Wilson) of an accuracy at so few target nodes; flagged bars are hatched, and
        controls are pale.

        Args:
            ax: Where to draw; `None` for a new figure.
            mlp: Accuracy in 0..1 of an MLP on the same targets, drawn as a dashed line, such as the
                `clean_accuracy` of its own report. An MLP ignores the edges, so below the line the
                graph does harm.

        Raises:
            ConfigError: `mlp` is not in 0..1.
        """
        mlp = None if mlp is None else check_value("mlp", mlp, Share)
        ax = ax or new_axes()
        frame = self.to_frame()
        bars = ax.barh(frame["attack"], 100 * frame["accuracy"], color="#4477aa")
        for i, (bar, accuracy) in enumerate(zip(bars, frame["accuracy"], strict=True)):
            flagged, control = frame["flags"][i], frame["is_control"][i]
            bar.set(hatch="//" if flagged else None, alpha=0.5 if control else 1.0)
            low, high = (100 * end for end in wilson(accuracy, self.num_targets))
            ax.plot([low, high], [i, i], color="#1b1b1b", lw=1.2, marker="|")
            ax.text(high + 1.5, i, f"{100 * accuracy:.1f}", va="center")
        if mlp is not None:
            ax.axvline(100 * mlp, color="#1b1b1b", ls="--", lw=1, label=f"MLP {100 * mlp:.1f} %")
            ax.legend(loc="lower right")
        label = f"accuracy in % at {self.num_targets} target nodes, with 95 % intervals"
        ax.set(xlim=(0, 110), xlabel=label, title=self.model)
        ax.set_xticks(range(0, 101, 20))
        ax.invert_yaxis()
        return ax

    def plot_effort(self, ax: "Axes | None" = None) -> "Axes":
        """Plot the lowest accuracy in % that each attack has reached, against forward passes.

        Needs Matplotlib (`pip install 'robust-diffusion[report]'`).

        Args:
            ax: Where to draw; `None` for a new figure.
        """
        ax = ax or new_axes()
        plot_traces({attack.name: attack.effort for attack in self.attacks}, ax)
        return ax

    def to_json(self) -> str:
        """Return the record as JSON: everything except the graphs."""
        keys = ["threat", "attacker_knows", "seed", "dataset", "clean_graph", "weights"]
        record = {
            "model": self.model,
            "clean_accuracy": self.clean_accuracy,
            "robust_accuracy": self.robust_accuracy,
            "attacks": [attack.record() for attack in self.attacks],
            "budget": asdict(self.budget),
            **{key: getattr(self, key) for key in [*keys, "num_targets"]},
            "flags": [asdict(flag) for flag in self.flags],
            "notes": list(self.notes),
            "version": __version__,
        }
        return json.dumps(record, indent=2, allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write `report.json`, the clean and the attacked graphs into a folder, as safetensors.

        The graphs of an older report in the folder are removed. `load` reads the report, and
        `robust-diffusion audit` counts the spent budget from the graphs. To read a graph with PyG,
        use `Data.from_dict(safetensors.torch.load_file(file))`.

        Returns:
            The folder.

        Raises:
            ConfigError: The folder cannot be written.
        """
        folder, older = Path(path), set[str]()
        with suppress(DataError):
            older = {graph_file(attack.name) for attack in read_saved(folder).attacks}
        write_whole(folder / REPORT, self.to_json() + "\n", option="report.save")
        for attack in self.attacks:
            attack.write(folder)
        about = {"clean_graph": self.clean_graph}
        write_artifact(folder / _CLEAN, Artifact(self.clean.to_dict(), about))
        for name in older - {graph_file(attack.name) for attack in self.attacks}:
            (folder / name).unlink(missing_ok=True)
        return folder

    @classmethod
    def load(cls, path: str | Path) -> "RobustnessReport":
        """Read a folder that `save` has written, without executing any code in it.

        Raises:
            DataError: A file is missing or damaged, a value is out of range, or a graph does not
                belong to the report.
        """
        folder = Path(path)
        saved = read_saved(folder)
        clean = _clean(folder, saved.clean_graph)
        if (count := len(clean.target_nodes)) != saved.num_targets:
            raise DataError(
                f"{folder / REPORT}: num_targets: expected {count}, got {saved.num_targets}"
            )
        attacks = [AttackReport.read(folder, attack, clean) for attack in saved.attacks]
        return cls(**vars(saved) | {"attacks": attacks, "clean": clean})


class SavedAttack(Schema):
    """Entry of one attack in `report.json`; fields as in `AttackReport`."""

    name: Annotated[Text, Field(min_length=1)]
    kind: Kind
    accuracy: UnitShare
    is_control: bool
    made_on: Text
    flags: tuple[Flag, ...]
    spent: SpentBudget
    forwards: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0)]
    trace: Annotated[tuple[tuple[int, float, UnitShare], ...], Field(min_length=1)]
    reused: bool
    graph: str  # its hash
    attacker_knows: Knowledge
    by_seed: tuple[UnitShare, ...] = ()
    part: str
    part_accuracy: dict[str, UnitShare]
    given_up: dict[str, GivenUp] = Field(default_factory=dict)  # older reports lack it


class SavedReport(Schema):
    """Content of `report.json`; fields as in `RobustnessReport`."""

    model: Text
    clean_accuracy: UnitShare
    attacks: Annotated[list[SavedAttack], Field(min_length=1)]
    budget: Budget
    num_targets: Annotated[int, Field(ge=1)]
    threat: ThreatName
    attacker_knows: Knowledge
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    flags: tuple[Flag, ...]
    dataset: Text
    clean_graph: Text
    weights: Text
    notes: tuple[str, ...]


def read_saved(folder: Path) -> SavedReport:
    """Read `report.json` from a folder that `RobustnessReport.save` has written."""
    path = folder / REPORT
    try:
        saved = SavedReport.model_validate_json(read_limited(path, LARGEST))
        _ = saved.budget.limits
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; name a folder that report.save() has made") from error
    except ValidationError as error:
        remedy = "save it by this version"
        raise DataError(f"{path}: not a report: {first_problem(error)}; {remedy}") from error
    except (OSError, ConfigError) as error:
        raise DataError(f"{path}: not a report ({error})") from error
    names = [attack.name for attack in saved.attacks]
    if len({graph_file(name) for name in names}) < len(names) or "clean" in names:
        raise DataError(f"{path}: attacks: share a name or a file of {', '.join(names)}")
    return saved


def _clean(folder: Path, fingerprint: str) -> Data:
    """Read the clean graph of a report; raise a `DataError` if its hash differs."""
    tensors = read_artifact(folder / _CLEAN).tensors
    graph = Data.from_dict(tensors)
    try:
        targets = node_index(graph, tensors.get("target_nodes"), "target_nodes")
        checked_graph(graph, {"target_nodes": targets})
    except DataError as error:
        raise DataError(f"{folder / _CLEAN}: {error}") from error
    if graph_hash(graph, graph["target_nodes"]) != fingerprint:
        raise DataError(f"{folder / _CLEAN}: is not the clean graph of the report beside it")
    return graph


def wilson(accuracy: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval, in 0..1, of an accuracy on a sample of `count` nodes."""
    from scipy.stats import binomtest  # late: it takes a quarter of a second

    bounds = binomtest(round(accuracy * count), count).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def interval(accuracy: float, count: int) -> str:
    """Format Wilson's 95 % interval, in %, of an accuracy on a sample of `count` nodes."""
    return "{:.1f} .. {:.1f}".format(*(100 * end for end in wilson(accuracy, count)))


def new_axes() -> "Axes":
    """Return the axes of a new figure; raise a `ConfigError` without Matplotlib."""
    with needs_extra("report", "report.plot"):
        from matplotlib import pyplot as plt
    axes: Axes = plt.subplots(layout="constrained")[1]
    return axes


def _codes(flags: Sequence[Flag]) -> str:
    return ", ".join(dict.fromkeys(flag.code for flag in flags))


def graph_file(attack: str) -> str:
    """Return the file name of an attack's graph, unique for each attack of a report."""
    name = re.sub(r"[^\w.-]+", "-", attack)
    suffix = "" if name == attack else f"-{sha256(attack.encode()).hexdigest()[:8]}"
    return f"graph-{name}{suffix}.safetensors"


def plot_traces(efforts: Mapping[str, Mapping[str, Any]], axes: "Axes") -> None:
    """Plot the lowest accuracy reached by each attack against its forward passes; see `Effort`."""
    for name, cost in efforts.items():
        forwards, _, reached = zip(*cost["trace"], strict=True)
        x = [max(1, count) for count in (*forwards, cost["forwards"])]  # on a logarithmic axis
        y = [100 * accuracy for accuracy in (*reached, reached[-1])]
        label = f"{name}, {cost['seconds']:.0f} s" if cost["seconds"] >= 1 else f"{name}, under 1 s"
        axes.step(x, y, where="post", label=label, marker="o", ms=4, markevery=[-1])
    axes.set(xscale="log", ylim=(0, 100), xlabel="forward passes", ylabel="accuracy in %")
    axes.legend(frameon=False, fontsize=8)
