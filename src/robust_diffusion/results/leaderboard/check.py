"""Reports of attacks: read as data, checked by their graphs on a model that is at hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from torch import nn

from robust_diffusion.attacks import Attack, AutoInjection, Budget, PerturbedGraph
from robust_diffusion.attacks.audit import audit, read_perturbed
from robust_diffusion.attacks.base import Kind
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.folders import dataset_names
from robust_diffusion.data.inventory import open_dataset
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.records import Record, latest_by_cell
from robust_diffusion.records.schema import Schema, Share, first_problem
from robust_diffusion.results.evidence import THOROUGH
from robust_diffusion.robustness import evaluate
from robust_diffusion.robustness.attack_report import AttackReport, graph_file
from robust_diffusion.robustness.report import REPORT
from robust_diffusion.robustness.subject import Subject, subject_of
from robust_diffusion.robustness.zoo import Zoo
from robust_diffusion.system.files import check_readable, read_limited
from robust_diffusion.system.hashes import state_hash

TOLERANCE = 0.015
"""Accuracy, in 0..1, by which rounding on another processor may be off a claim."""

LARGEST = 10_000_000, 1_000_000_000
"""Bytes of a `report.json` and of a graph's file, at most."""

LIMITS = ("max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges")

OWN = "own"
"""Variant of a model that is not the package's."""

Text = Annotated[str, Field(max_length=200)]


class AttackClaim(Schema):
    """The claims about one attack; fields as of `AttackReport`."""

    name: Annotated[Text, Field(min_length=1)]
    kind: Kind
    accuracy: Share
    is_control: bool
    made_on: Text


class Claims(Schema):
    """The claims of a report; fields as of `RobustnessReport`, and the folder it was read from."""

    model: Text
    dataset: Text = ""  # reports of older versions lack it, the clean graph and the weights
    clean_graph: Text = ""
    weights: Text = ""
    clean_accuracy: Share
    budget: Budget
    threat: Literal["white_box", "adaptive", "black_box"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    attacks: Annotated[list[AttackClaim], Field(min_length=1)]
    folder: Path = Path()

    @property
    def name(self) -> str:
        """The model, with the hash of its weights."""
        return f"{self.model} {self.weights[:8]}"

    @property
    def source(self) -> str:
        """Name of the report."""
        return f"report {self.folder.resolve().name}"


def read_claims(folder: Path) -> Claims:
    """Read `report.json` of a folder, as `RobustnessReport.save` has written it.

    Raises:
        DataError: It is missing, or says something that no report says.
    """
    path = folder / REPORT
    try:
        claims = Claims.model_validate_json(read_limited(path, LARGEST[0]))
        _ = claims.budget.limits  # which a board is named by
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; name a folder that report.save() has made") from error
    except ValidationError as error:
        raise DataError(f"{path}: is no report: {first_problem(error)}") from error
    except (OSError, ConfigError) as error:
        raise DataError(f"{path}: is no report ({error})") from error
    names = [attack.name for attack in claims.attacks]
    if len({graph_file(name) for name in names}) < len(names) or "clean" in names:
        raise DataError(f"{path}: attacks: share a name or a file of {', '.join(names)}")
    return claims.model_copy(update={"folder": folder})


@dataclass(frozen=True)
class Entry:
    """A report, with what was measured of it."""

    claims: Claims
    records: Sequence[Record] = ()  # as cells leave them; none if it could not be checked
    reason: str = ""  # why it could not
    training: str = ""  # overrides by which its model was trained anew, if it was


class _Uncheckable(Exception):  # noqa: N818
    pass


class Given(Attack):
    """A graph from elsewhere, measured as that of an attack is."""

    name = "given"
    kind = "injection"
    is_worst_case = True  # to spend less than the budget is no flaw

    def __init__(self, graph: PerturbedGraph) -> None:
        self.graph = graph

    def __call__(self, *_: Any) -> PerturbedGraph:
        """The graph."""
        return self.graph


@dataclass(frozen=True)
class ReportCheck:
    """Check of reports against models, clean graphs and budgets that are not theirs.

    Args:
        records: The published ones of the board.
        zoo: Models that a report names by the hash of their weights.
        own: Builds or trains the user's model for a graph; `None` for none.
        training: Overrides by which `own` trains it; "" where it loads weights.
        attack: Run on the user's model under the name of `auto`; `None` for none.
    """

    records: Sequence[Record]
    zoo: Zoo
    own: Callable[[GraphDataModule], nn.Module] | None = None
    training: str = ""
    attack: Attack | None = field(default_factory=AutoInjection)

    def __call__(self, folder: Path) -> Entry:
        """Check one report.

        Args:
            folder: As `RobustnessReport.save` has written it.

        Raises:
            DataError: The folder is damaged, or a claim does not hold, told with both numbers.
            ConfigError: The model does not suit the dataset.
        """
        claims = read_claims(folder)
        try:
            records = self._records_of(claims)
        except _Uncheckable as error:
            return Entry(claims, reason=str(error))
        is_own = records[0]["fidelity"] == OWN
        return Entry(claims, records, training=self.training if is_own else "")

    def _records_of(self, claims: Claims) -> list[Record]:
        """Records of the attacks that saw the model, and of those that did not."""
        if claims.dataset not in dataset_names():
            raise _Uncheckable("it names no dataset that can be loaded here")
        datamodule = open_dataset(claims.dataset)
        try:
            datamodule.setup()
        except DataError as error:
            raise _Uncheckable(str(error)) from error
        model, base = self._model(claims, datamodule)
        is_own = base["fidelity"] == OWN
        subject = subject_of(model, datamodule, "test", None)
        if claims.clean_graph != subject.fingerprint:
            raise DataError(
                f"its clean graph is {claims.clean_graph[:16] or 'not named'}, and that of "
                f"dataset={claims.dataset} with its test nodes {subject.fingerprint[:16]}"
            )
        budget, graphs = self._on_board(claims, base, subject)
        options: Any = {"budget": budget, "seed": base["seed"], "progress": False}
        # What a report calls `auto` need not be it.
        attacks = {f"{name}, reported": Given(graph) for name, graph in graphs.items()}
        reported = evaluate(model, datamodule, attacks=attacks, **options)
        _hold("clean accuracy", claims.clean_accuracy, reported.clean_accuracy)
        found: list[AttackReport] = list(reported.attacks)
        unseen = {"random"}
        for claim in claims.attacks:
            if claim.name in graphs:
                measured = reported[f"{claim.name}, reported"]
                _hold(f"{claim.name}: accuracy", claim.accuracy, measured.accuracy)
                if claim.made_on or claims.threat == "black_box":
                    unseen.add(measured.name)
        if is_own:
            others = dict(self._worst_graphs(claims, subject, budget))
            unseen |= others.keys()
            if tried := others | ({THOROUGH: self.attack} if self.attack else {}):
                found += evaluate(model, datamodule, attacks=tried, **options).attacks
        clean = {"clean": reported.clean_accuracy} if is_own else base["accuracy"]
        flags = {attack.name: [flag.code for flag in attack.flags] for attack in found}
        common = base | {
            "split": datamodule.split_hash,
            "budget": {"declared": asdict(budget)},
            "flags": flags | {"victim": [flag.code for flag in reported.flags]},
        }
        return [
            common
            | {
                "cell": f"{claims.folder.resolve()} {threat}",
                "threat": threat,
                "accuracy": clean
                | {of.name: of.accuracy for of in found if (of.name in unseen) == other},
            }
            for threat, other in (("white_box", False), ("black_box", True))
        ]

    def _model(self, claims: Claims, datamodule: GraphDataModule) -> tuple[nn.Module, Record]:
        """The model of a report, and what its records have in common."""
        cells = latest_by_cell(self.records)
        for entry in self.zoo.entries:
            if entry.weights == claims.weights:
                if entry.cell not in cells:
                    raise _Uncheckable(f"cell {entry.cell} of its model is not in the records")
                cell = cells[entry.cell]
                clean = {"clean": cell["accuracy"]["clean"]}
                # What was attacked is told anew.
                config = cell.get("config", {}) | {"threat": None}
                anew = {"accuracy": clean, "config": config, "parts": {}, "surrogates": []}
                return self.zoo.load(entry), cell | anew
        if self.own is None:
            raise _Uncheckable("no zoo entry has its weights, and no model is named")
        model = self.own(datamodule).eval()
        if state_hash(model.state_dict()) != claims.weights:
            how = "the declared training gives" if self.training else "--weights has"
            raise _Uncheckable(f"{how} other weights than the report's")
        return model, {
            "dataset": claims.dataset,
            "fidelity": OWN,
            "model": claims.name,
            "weights": claims.weights,
            "seed": claims.seed,
        }

    def _worst_graphs(
        self, claims: Claims, subject: Subject, budget: Budget
    ) -> Iterator[tuple[str, Attack]]:
        """Graphs within the budget that do most to models of the zoo."""
        for entry in self.zoo.entries:
            if entry.dataset == claims.dataset:
                graph = self.zoo.worst_graph(entry, subject.graph)
                if not _breaches(subject, graph, budget):
                    yield f"worst of {entry.name}", Given(graph)

    def _on_board(
        self, claims: Claims, base: Record, subject: Subject
    ) -> tuple[Budget, Mapping[str, PerturbedGraph]]:
        """The budget of a published board and the graphs within it, or else the report's and all.

        To attack a published model with less is as good as with all of it. A model of one's own is
        compared with those that had to withstand as much.
        """
        graphs = dict(_graphs(claims, subject))
        if not graphs:
            raise _Uncheckable("it has no injection, and boards are of injections")
        own = base["fidelity"] == OWN
        records = [r for r in self.records if r["dataset"] == claims.dataset] if own else [base]
        for budget in sorted({Budget(**r["budget"]["declared"]) for r in records}, key=str):
            within = {n: of for n, of in graphs.items() if not _breaches(subject, of, budget)}
            same = all(getattr(budget, key) == getattr(claims.budget, key) for key in LIMITS)
            if within and (not own or (same and len(within) == len(graphs))):
                return budget, within
        return claims.budget, graphs


def _graphs(claims: Claims, subject: Subject) -> Iterator[tuple[str, PerturbedGraph]]:
    """The graphs of injections, if each is within the report's budget; chance is drawn anew."""
    for claim in claims.attacks:
        if claim.kind == "injection" and not claim.is_control:
            path = claims.folder / graph_file(claim.name)
            check_readable(path, LARGEST[1])
            read = read_perturbed(path, subject.graph)
            graph = PerturbedGraph(read.x, read.edge_index, subject.graph.num_nodes or 0)
            if broken := _breaches(subject, graph, claims.budget):
                raise DataError(f"{claim.name}: breaks its budget: {broken[0]}")
            yield claim.name, graph


def _breaches(subject: Subject, graph: PerturbedGraph, budget: Budget) -> list[str]:
    """Limits that an injection breaks, as the auditor tells them."""
    limits = asdict(budget)
    found = audit(subject.graph, graph, kind="injection", target_nodes=subject.targets, **limits)
    return [violation.message for violation in found if violation.level == "error"]


def _hold(what: str, claimed: float, found: float) -> None:
    """Refuse a claim that is not what was measured."""
    if abs(claimed - found) > TOLERANCE:
        raise DataError(f"{what} claimed {100 * claimed:.2f} %, found {100 * found:.2f} %")
