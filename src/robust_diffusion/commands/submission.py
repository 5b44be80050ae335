"""Reports of attacks: read as data, measured anew on a model that is at hand, and so recorded."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from robust_diffusion.attacks import Attack, AutoInjection, Budget, PerturbedGraph
from robust_diffusion.attacks.audit import audit, read_perturbed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.folders import dataset_names
from robust_diffusion.data.inventory import open_dataset
from robust_diffusion.errors import DataError
from robust_diffusion.records.records import Record, latest_by_cell
from robust_diffusion.results.evidence import THOROUGH
from robust_diffusion.results.leaderboard.grid import OWN, Grid, points_of
from robust_diffusion.robustness import evaluate
from robust_diffusion.robustness.attack_report import graph_file
from robust_diffusion.robustness.report import RobustnessReport
from robust_diffusion.robustness.saved_report import Claims, read_claims
from robust_diffusion.robustness.subject import Subject, subject_of
from robust_diffusion.robustness.zoo import Zoo
from robust_diffusion.system.files import check_readable
from robust_diffusion.system.tensor_hashes import state_hash

TOLERANCE = 0.015
"""Accuracy, in 0..1, by which rounding on another processor may be off a claim."""

LARGEST = 1_000_000_000
"""Bytes of a graph's file, at most."""

LIMITS = ("max_injected_nodes", "max_edges_per_injected_node")


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
        grid: Budgets of the board; `None` for `GRID`.
    """

    records: Sequence[Record]
    zoo: Zoo
    own: Callable[[GraphDataModule], nn.Module] | None = None
    training: str = ""
    attack: Attack | None = field(default_factory=AutoInjection)
    grid: Grid | None = None

    def __call__(self, folder: Path) -> list[Record]:
        """Check one report, and measure it at each budget of the board.

        A graph counts within each budget that holds it. A model of the user's is attacked by
        `attack` within each, and by the worst graphs of the zoo.

        Args:
            folder: As `RobustnessReport.save` has written it.

        Returns:
            Records as cells leave them, with the `report` that they are of.

        Raises:
            DataError: The folder is damaged, a model or dataset is not at hand, or a claim does not
                hold, told with both numbers.
            ConfigError: The model does not suit the dataset.
        """
        claims = read_claims(folder)
        if claims.dataset not in dataset_names():
            raise DataError("it names no dataset that can be loaded here")
        datamodule = open_dataset(claims.dataset)
        datamodule.setup()
        model, base = self._model(claims, datamodule)
        subject = subject_of(model, datamodule, "test", None)
        if claims.clean_graph != subject.fingerprint:
            raise DataError(
                f"its clean graph is {claims.clean_graph[:16] or 'not named'}, and that of "
                f"dataset={claims.dataset} with its test nodes {subject.fingerprint[:16]}"
            )
        measure = partial(evaluate, model, datamodule, seed=base["seed"], progress=False)
        graphs, unseen = _reported(claims, subject, measure)
        if is_own := base["fidelity"] == OWN:
            worst = dict(self._worst_graphs(claims, subject))
            graphs, unseen = graphs | worst, unseen | worst.keys()
        records: list[Record] = []
        for budget in self._budgets(claims):
            within = {n: g for n, g in graphs.items() if not _breaches(subject, g.graph, budget)}
            attacks: dict[str, Attack] = {**within}
            if is_own and self.attack:
                attacks[THOROUGH] = self.attack
            if attacks:
                found = measure(attacks=attacks, budget=budget)
                declared = {"budget": {"declared": asdict(budget)}}
                records += self._as_cells(claims, base | declared, found, unseen)
        if not records:
            raise DataError("no budget of the board holds any of its graphs")
        return records

    def _as_cells(
        self, claims: Claims, base: Record, found: RobustnessReport, unseen: Collection[str]
    ) -> list[Record]:
        """Records of the attacks that saw the model, and of those that did not."""
        flags = {attack.name: [flag.code for flag in attack.flags] for attack in found.attacks}
        training = self.training if base["fidelity"] == OWN else ""
        common = base | {
            "flags": flags | {"victim": [flag.code for flag in found.flags]},
            "surrogate_flags": {},  # all were measured on the model
            "report": {"source": claims.source, "training": training},
        }
        limits = [base["budget"]["declared"][key] for key in LIMITS]
        clean = {"clean": found.clean_accuracy} if base["fidelity"] == OWN else base["accuracy"]
        return [
            common
            | {
                "cell": "{} {}x{} {}".format(claims.source, *limits, threat),
                "threat": threat,
                "accuracy": clean
                | {of.name: of.accuracy for of in found.attacks if (of.name in unseen) == other},
            }
            for threat, other in (("white_box", False), ("black_box", True))
        ]

    def _model(self, claims: Claims, datamodule: GraphDataModule) -> tuple[nn.Module, Record]:
        """The model of a report, and what its records have in common."""
        cells = latest_by_cell(self.records)
        for entry in self.zoo.entries:
            if entry.weights == claims.weights:
                if entry.cell not in cells:
                    raise DataError(f"cell {entry.cell} of its model is not in the records")
                cell = cells[entry.cell]
                clean = {"clean": cell["accuracy"]["clean"]}
                # What was attacked is told anew.
                config = cell.get("config", {}) | {"threat": None}
                anew = {"accuracy": clean, "config": config, "parts": {}, "surrogates": []}
                return self.zoo.load(entry), cell | anew
        if self.own is None:
            raise DataError(
                "no zoo entry has its weights; give its training by --training, or the model by "
                "--model and --weights"
            )
        model = self.own(datamodule).eval()
        if state_hash(model.state_dict()) != claims.weights:
            how = "the declared training gives" if self.training else "--weights has"
            raise DataError(f"{how} other weights than the report's")
        on_validation = subject_of(model, datamodule, "val", None)
        logits = on_validation.logits(on_validation.graph, claims.seed)
        return model, {
            "dataset": claims.dataset,
            "experiment": "none",
            "fidelity": OWN,
            "model": claims.name,
            "split": datamodule.split_hash,
            "val_accuracy": on_validation.accuracy(logits),
            "weights": claims.weights,
            "seed": claims.seed,
        }

    def _worst_graphs(self, claims: Claims, subject: Subject) -> Iterator[tuple[str, "Given"]]:
        """Graphs that do most to models of the zoo."""
        for entry in self.zoo.entries:
            if entry.dataset == claims.dataset:
                graph = self.zoo.worst_graph(entry, subject.graph)
                yield f"worst of {entry.name}", Given(graph)

    def _budgets(self, claims: Claims) -> list[Budget]:
        """Those of the dataset's board, or the report's where there is none."""
        of_dataset = (r for r in self.records if r["dataset"] == claims.dataset)
        found = {Budget(**r["budget"]["declared"]) for r in of_dataset}
        points = points_of(found, self.grid)
        named = {(of.max_injected_nodes, of.max_edges_per_injected_node): of for of in found}
        return [named[point] for point in points] or [claims.budget]


def _reported(
    claims: Claims, subject: Subject, measure: Callable[..., RobustnessReport]
) -> tuple[dict[str, Given], set[str]]:
    """Graphs of a report whose claims hold, and names of those made without seeing the model."""
    # What a report calls `auto` need not be it.
    named = {claim.name: f"{claims.source}: {claim.name}" for claim in claims.attacks}
    graphs = {named[name]: Given(graph) for name, graph in _graphs(claims, subject)}
    if not graphs:
        raise DataError("it has no injection, and boards are of injections")
    found, unseen = measure(attacks=graphs, budget=claims.budget), {"random"}
    _hold("clean accuracy", claims.clean_accuracy, found.clean_accuracy)
    for claim in claims.attacks:
        if (name := named[claim.name]) in graphs:
            _hold(f"{claim.name}: accuracy", claim.accuracy, found[name].accuracy)
            if claim.made_on or claims.threat == "black_box":
                unseen.add(name)
    return graphs, unseen


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


def _hold(what: str, claimed: float, found: float) -> None:
    """Refuse a claim that is not what was measured."""
    if abs(claimed - found) > TOLERANCE:
        raise DataError(f"{what} claimed {100 * claimed:.2f} %, found {100 * found:.2f} %")
