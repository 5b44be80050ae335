"""Check of a report by the graphs that it carries, on a model that is at hand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from robust_diffusion.attacks import Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.audit import read_perturbed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.inventory import dataset_names, open_dataset
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.records import Record, latest_by_cell
from robust_diffusion.evaluation.subject import Subject, subject_of
from robust_diffusion.evaluation.zoo import Zoo, ZooEntry
from robust_diffusion.hashes import state_hash
from robust_diffusion.results.leaderboard.claims import AttackClaim, Claims, read_claims
from robust_diffusion.results.leaderboard.evidence import (
    accuracy_on_worst_graphs,
    breaches,
    chance_accuracy,
    flags_of,
)

TOLERANCE = 0.015
"""Accuracy, in 0..1, by which rounding on another processor may be off a claim."""

ROUNDING = 1e-6
"""The same of a feature, a 32-bit float."""

INJECTION_LIMITS = ("max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges")

Attacked = tuple[AttackClaim, PerturbedGraph]

OWN = "own"
"""Variant of a model that is not the package's."""


@dataclass(frozen=True)
class Checked:
    """A report whose claims hold.

    Args:
        source: Its name.
        records: What was measured anew, as cells leave it.
    """

    source: str
    records: Sequence[Record]


@dataclass(frozen=True)
class Unchecked:
    """A report that could not be checked, and the reason."""

    claims: Claims
    reason: str


@dataclass(frozen=True)
class ReportCheck:
    """Check of reports against models, clean graphs and budgets that are not theirs.

    Args:
        records: The published ones of the board.
        zoo: Models that a report names by the hash of their weights; `None` for none.
        own: Builds and loads the user's model for a graph; `None` for none.
    """

    records: Sequence[Record]
    zoo: Zoo | None
    own: Callable[[GraphDataModule], nn.Module] | None

    def __call__(self, folder: str | Path) -> Checked | Unchecked:
        """Check one report.

        Args:
            folder: As `RobustnessReport.save` has written it.

        Raises:
            DataError: The folder is damaged, or a claim does not hold, told with both numbers.
            ConfigError: The model does not suit the dataset.
        """
        claims = read_claims(folder)
        entry = self._entry(claims)
        if claims.dataset not in dataset_names():
            return Unchecked(claims, "it names no dataset that can be loaded here")
        if entry is None and self.own is None:
            return Unchecked(claims, "no zoo entry has its weights, and no --model is named")
        if entry is not None and entry.cell not in latest_by_cell(self.records):
            return Unchecked(claims, f"cell {entry.cell} of the zoo's model is not in the records")
        datamodule = open_dataset(claims.dataset)
        try:
            datamodule.setup()
        except DataError as error:
            return Unchecked(claims, str(error))
        if entry is not None and self.zoo is not None:
            model = self.zoo.load(entry)
        elif self.own is not None:
            model = self.own(datamodule)
            if state_hash(model.state_dict()) != claims.weights:
                return Unchecked(claims, "neither a zoo entry nor --weights are its weights")
        subject = subject_of(model, datamodule, "test", None)
        if claims.clean_graph != subject.fingerprint:
            raise DataError(
                f"its clean graph is {claims.clean_graph[:16] or 'not named'}, and that of "
                f"dataset={claims.dataset} with its test nodes {subject.fingerprint[:16]}"
            )
        graphs = list(_graphs(claims, subject))
        if not graphs:
            return Unchecked(claims, "it has no injection, and boards are of injections")
        budget, counted = self._on_board(claims, entry, subject, graphs)
        base = self._base(claims, entry) | {
            "split": datamodule.split_hash,
            "budget": {"declared": asdict(budget)},
            "parts": {},
        }
        return Checked(claims.source, list(self._measured(claims, subject, counted, base)))

    def _entry(self, claims: Claims) -> ZooEntry | None:
        entries = self.zoo.entries if self.zoo else ()
        return next((entry for entry in entries if entry.weights == claims.weights), None)

    def _on_board(
        self,
        claims: Claims,
        entry: ZooEntry | None,
        subject: Subject,
        graphs: Sequence[Attacked],
    ) -> tuple[Budget, Sequence[Attacked]]:
        """The budget of a published board and the graphs within it, or else the report's and all.

        To attack a published model with less is as good as with all of it, so any such graph
        counts. A model of one's own is compared with those that had to withstand as much.
        """
        latest = latest_by_cell(self.records)
        comparable = self.records if entry is None else [latest[entry.cell]]
        of_boards = {
            Budget(**record["budget"]["declared"])
            for record in comparable
            if record["dataset"] == claims.dataset
        }
        for budget in sorted(of_boards, key=str):
            same = all(getattr(budget, k) == getattr(claims.budget, k) for k in INJECTION_LIMITS)
            within = [(a, graph) for a, graph in graphs if not breaches(subject, graph, budget)]
            attacks = {attack.name for attack, _ in within if not attack.is_control}
            wanted = {attack.name for attack, _ in graphs if not attack.is_control}
            if attacks and (entry is not None or (same and attacks == wanted)):
                return budget, within
        return claims.budget, graphs

    def _base(self, claims: Claims, entry: ZooEntry | None) -> Record:
        """Names and seed of a record."""
        if entry is not None:
            return latest_by_cell(self.records)[entry.cell]
        model = f"{claims.model}, {claims.source}"
        return {
            "dataset": claims.dataset,
            "fidelity": OWN,
            "model": model,
            "flow": None,
            "seed": claims.seed,
        }

    def _measured(
        self,
        claims: Claims,
        subject: Subject,
        graphs: Sequence[Attacked],
        base: Record,
    ) -> Iterator[Record]:
        """A record of attacks that know the model, and one of chance and of other models'."""
        seed, budget = base["seed"], Budget(**base["budget"]["declared"])
        clean = subject.accuracy(subject.logits(subject.graph, seed))
        _hold_accuracy("clean accuracy", claims.clean_accuracy, clean)
        known: dict[str, float] = {}
        transferred = {"random": chance_accuracy(subject, budget, seed)}
        for attack, graph in graphs:
            accuracy = subject.accuracy(subject.logits(graph, seed))
            _hold_accuracy(f"{attack.name}: accuracy", attack.accuracy, accuracy)
            if claims.threat == "black_box" or attack.made_on or attack.is_control:
                name = "random" if attack.is_control else attack.name
                transferred[name] = min(accuracy, transferred.get(name, 1.0))
            else:
                known[attack.name] = accuracy
        is_own = base["fidelity"] == OWN
        if is_own and self.zoo is not None:
            of_zoo = accuracy_on_worst_graphs(subject, self.zoo, claims.dataset, budget, seed)
            transferred |= dict(of_zoo)
        attacked = {attack.name: graph for attack, graph in graphs if attack.name in known}
        # Less than was allowed is no weakness of an attack that stands beside the published one.
        flags = flags_of(subject, attacked, budget if is_own else None, seed)
        clean = clean if is_own else base["accuracy"]["clean"]
        measured = {"transfer": ("black_box", transferred), "own": (claims.threat, known)}
        for made_on, (threat, accuracy_under) in measured.items():
            if accuracy_under:
                yield base | {
                    "cell": f"{claims.folder.resolve()} {made_on}",
                    "threat": threat,
                    "accuracy": {"clean": clean, **accuracy_under},
                    "flags": flags,
                }


def _graphs(claims: Claims, subject: Subject) -> Iterator[Attacked]:
    """The graphs of injections, if each spends what the report says, and no more than it may."""
    clean = subject.graph
    for attack in claims.attacks:
        if attack.kind != "injection":
            continue
        read = read_perturbed(claims.graph(attack), clean)
        graph = PerturbedGraph(read.x, read.edge_index, clean.num_nodes or 0)
        if broken := breaches(subject, graph, claims.budget):
            raise DataError(f"{attack.name}: breaks its budget: {broken[0]}")
        for key, found in asdict(spent_budget(clean, graph)).items():
            claimed = attack.spent.get(key)
            if not _agree(claimed, found):
                raise DataError(f"{attack.name}: {key} claimed {claimed}, found {found}")
        yield attack, graph


def _agree(claimed: Any, found: Any) -> bool:
    """True of equal values, features up to their rounding."""
    if isinstance(found, Sequence):
        ends = claimed if isinstance(claimed, Sequence) else ()
        return len(ends) == len(found) and all(map(_agree, ends, found))
    if isinstance(found, float) and isinstance(claimed, int | float):
        return abs(claimed - found) <= ROUNDING
    return bool(claimed == found)


def _hold_accuracy(what: str, claimed: float, found: float) -> None:
    if abs(claimed - found) > TOLERANCE:
        raise DataError(f"{what} claimed {100 * claimed:.2f} %, found {100 * found:.2f} %")
