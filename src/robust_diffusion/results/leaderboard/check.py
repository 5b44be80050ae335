"""Check of a report by the graphs that it carries, on a model that is at hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from robust_diffusion.attacks import Attack, AutoInjection, Budget, PerturbedGraph
from robust_diffusion.attacks.audit import audit, read_perturbed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.inventory import dataset_names, open_dataset
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation import RobustnessReport, evaluate
from robust_diffusion.evaluation.records import Record, latest_by_cell
from robust_diffusion.evaluation.report import graph_file
from robust_diffusion.evaluation.subject import Subject, subject_of
from robust_diffusion.evaluation.zoo import Zoo
from robust_diffusion.files import check_readable
from robust_diffusion.hashes import state_hash
from robust_diffusion.results.evidence import THOROUGH
from robust_diffusion.results.leaderboard.claims import Claims, read_claims

TOLERANCE = 0.015
"""Accuracy, in 0..1, by which rounding on another processor may be off a claim."""

LARGEST = 1_000_000_000
"""Bytes of a graph's file, at most."""

LIMITS = ("max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges")

OWN = "own"
"""Variant of a model that is not the package's."""


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
            return self._checked(claims)
        except _Uncheckable as error:
            return Entry(claims, reason=str(error))

    def _checked(self, claims: Claims) -> Entry:
        if claims.dataset not in dataset_names():
            raise _Uncheckable("it names no dataset that can be loaded here")
        datamodule = open_dataset(claims.dataset)
        try:
            datamodule.setup()
        except DataError as error:
            raise _Uncheckable(str(error)) from error
        model, base = self._model(claims, datamodule)
        subject = subject_of(model, datamodule, "test", None)
        if claims.clean_graph != subject.fingerprint:
            raise DataError(
                f"its clean graph is {claims.clean_graph[:16] or 'not named'}, and that of "
                f"dataset={claims.dataset} with its test nodes {subject.fingerprint[:16]}"
            )
        is_own = base["fidelity"] == OWN
        boards = [r for r in self.records if r["dataset"] == claims.dataset] if is_own else [base]
        budget, graphs = _on_board(claims, boards, subject, own=is_own)

        def measure(attacks: Mapping[str, Attack]) -> RobustnessReport:
            options: Any = {"budget": budget, "seed": base["seed"], "progress": False}
            return evaluate(model, datamodule, attacks=attacks, **options)

        reported = measure({_reported(name): Given(graph) for name, graph in graphs.items()})
        _hold("clean accuracy", claims.clean_accuracy, reported.clean_accuracy)
        found, unseen = list(reported.attacks), {"random"}
        for claim in claims.attacks:
            if claim.name in graphs:
                measured = reported[_reported(claim.name)]
                _hold(f"{claim.name}: accuracy", claim.accuracy, measured.accuracy)
                if claim.made_on or claims.threat == "black_box":
                    unseen.add(measured.name)
        if is_own:
            others = dict(self._worst_graphs(claims, subject, budget))
            unseen |= others.keys()
            tried = others | ({THOROUGH: self.attack} if self.attack else {})
            found += measure(tried).attacks if tried else ()
        clean = {"clean": reported.clean_accuracy} if is_own else base["accuracy"]
        flags = {attack.name: [flag.code for flag in attack.flags] for attack in found}
        base |= {
            "split": datamodule.split_hash,
            "budget": {"declared": asdict(budget)},
            "flags": flags | {"victim": [flag.code for flag in reported.flags]},
        }
        records = [
            base
            | {"cell": f"{claims.folder.resolve()} {threat}", "threat": threat}
            | {
                "accuracy": clean
                | {a.name: a.accuracy for a in found if (a.name in unseen) == other}
            }
            for threat, other in (("white_box", False), ("black_box", True))
        ]
        return Entry(claims, records, training=self.training if is_own else "")

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


def _reported(name: str) -> str:
    """Name of a report's attack on the board: what it calls `auto` need not be it."""
    return f"{name}, reported"


def _graphs(claims: Claims, subject: Subject) -> Iterator[tuple[str, PerturbedGraph]]:
    """The graphs of injections, if each is within the report's budget; chance is drawn anew."""
    for claim in claims.attacks:
        if claim.kind == "injection" and not claim.is_control:
            path = claims.folder / graph_file(claim.name)
            check_readable(path, LARGEST)
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


def _on_board(
    claims: Claims, records: Sequence[Record], subject: Subject, *, own: bool
) -> tuple[Budget, Mapping[str, PerturbedGraph]]:
    """The budget of a published board and the graphs within it, or else the report's and all.

    To attack a published model with less is as good as with all of it. A model of one's own is
    compared with those that had to withstand as much.
    """
    graphs = dict(_graphs(claims, subject))
    if not graphs:
        raise _Uncheckable("it has no injection, and boards are of injections")
    for budget in sorted({Budget(**r["budget"]["declared"]) for r in records}, key=str):
        within = {n: graph for n, graph in graphs.items() if not _breaches(subject, graph, budget)}
        same = all(getattr(budget, key) == getattr(claims.budget, key) for key in LIMITS)
        if within and (not own or (same and len(within) == len(graphs))):
            return budget, within
    return claims.budget, graphs


def _hold(what: str, claimed: float, found: float) -> None:
    """Refuse a claim that is not what was measured."""
    if abs(claimed - found) > TOLERANCE:
        raise DataError(f"{what} claimed {100 * claimed:.2f} %, found {100 * found:.2f} %")
