"""Perturbed graphs, and a model's accuracy on each: every evaluation goes this way."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import (
    Attack,
    Budget,
    PerturbedGraph,
    RandomFlip,
    RandomInjection,
    SpentBudget,
    seeded,
    spent_budget,
)
from robust_diffusion.attacks.ensemble import Ensemble
from robust_diffusion.errors import AttackError
from robust_diffusion.records.content import by_content, computed_by
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness.effort import Effort, expected_forwards
from robust_diffusion.robustness.flag_codes import OF_THE_GRAPH
from robust_diffusion.robustness.flags import (
    Flag,
    Outdone,
    of_the_row,
    prediction_flags,
    victim_flags,
    weaker_than,
)
from robust_diffusion.robustness.kept_parts import KeptParts
from robust_diffusion.robustness.misled import Attempt, attack_flags, one_class
from robust_diffusion.robustness.subject import Task
from robust_diffusion.robustness.threat import AttackedModel
from robust_diffusion.system.artifact import Artifact
from robust_diffusion.system.progress import Progress
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

log = logging.getLogger(__name__)

OF_PARTS = ("part_accuracy", "part", "given_up")
"""Fields of a perturbed graph that describe the parts of its attack."""

BASELINES: dict[str, Attack] = {"injection": RandomInjection(), "modification": RandomFlip()}
"""Chance with the same budget, which an attack of each kind has to beat."""


@dataclass(frozen=True, eq=False)
class Run:
    """One attack on one model."""

    label: str  # of the attacked graph; no other run has it
    attack: Attack
    attacked: AttackedModel  # the model that the attack sees
    cache_key: Mapping[str, Any]  # configuration of both, by which the store knows the graph
    made_on: str = ""  # name of a surrogate; "" for the tested model
    row: str = ""  # name under which a table shows this run and others; "" for the label

    @property
    def is_control(self) -> bool:
        """True of chance with the same budget."""
        return self.attack is BASELINES[self.attack.kind]


@dataclass(frozen=True, eq=False)
class AttackOutcome:
    """The result of one attack on one model; its time is that of whenever it was computed."""

    graph: PerturbedGraph
    spent: SpentBudget
    clean_accuracy: float  # of the attacked model at the target nodes, in 0..1
    accuracy: float  # the same on the attacked graph
    flags: list[Flag]  # of the attacked model and of the graph
    effort: Mapping[str, Any]  # forwards, seconds and trace; see `Effort`
    path: Path  # of the entry in the store
    reused: bool


@dataclass(frozen=True, eq=False)
class Measured:
    """Accuracies of one model on the clean graph and on what attacks made of it."""

    accuracy: dict[str, float]  # per label, `clean` first, in 0..1
    outcomes: dict[str, AttackOutcome]  # per label
    flags: dict[str, list[Flag]]  # per attack and of the `victim`; none that is empty
    seconds: float  # wall time of the test


def attack_and_test(
    attacker: "Attacker",
    victim: nn.Module,
    runs: Sequence[Run],
    *,
    own_flags: Sequence[Flag] = (),
    norm_growth: float | None = 0.0,
    retrain: Callable[[str, PerturbedGraph], nn.Module] | None = None,
) -> Measured:
    """Run attacks, test a model on the clean and on each attacked graph, and collect all flags.

    Args:
        attacker: Has the graph, the budget and the seed.
        victim: The tested model, in eval mode, on the device of the attacker's task.
        runs: Attacks on the model or on surrogates.
        own_flags: Flags of the victim that are known already.
        norm_growth: As of `victim_flags`.
        retrain: Trains the model anew on each attacked graph, by its label; `None` for an evasion.
    """
    task, seed = attacker.task, attacker.seed
    outcomes = {run.label: attacker(run) for run in runs}
    retrained = {k: retrain(k, of.graph) for k, of in outcomes.items()} if retrain else {}
    start = time.perf_counter()
    graphs = {"clean": task.graph, **{label: of.graph for label, of in outcomes.items()}}
    models = {label: retrained.get(label, victim) for label in graphs}
    logits = {label: task.logits_of(models[label], graph, seed) for label, graph in graphs.items()}
    accuracy = {label: task.accuracy(of) for label, of in logits.items()}
    seconds = time.perf_counter() - start
    weights = state_hash(victim.state_dict())
    own = [*own_flags, *victim_flags(victim, task, norm_growth)]
    _tell("victim", own)
    found: dict[str, list[Flag]] = {}
    lowest: dict[str, float] = {}
    for run in runs:
        row, outcome = run.row or run.label, outcomes[run.label]
        crafted, after = outcome.flags, logits[run.label]
        raised = [] if retrained else list(_outdone(run, runs, accuracy))
        if run.made_on and run.attacked.state != weights:
            # What was measured on a surrogate is no sign of the tested model.
            crafted = [flag for flag in crafted if flag.code in OF_THE_GRAPH]
            if not retrained:
                classes = logits["clean"].argmax(1), after.argmax(1), task.labels
                raised += of_the_row(one_class(*classes), accuracy[run.label])
        raised += prediction_flags(models[run.label], task, outcome.graph, after, seed)
        _tell(row, raised)
        found[row] = [*found.get(row, []), *crafted, *raised]
        lowest[row] = min(accuracy[run.label], lowest.get(row, 1.0))
    flags = {row: of_the_row([*of, *own], lowest[row]) for row, of in found.items()}
    flags["victim"] = own
    return Measured(accuracy, outcomes, {row: of for row, of in flags.items() if of}, seconds)


def _outdone(run: Run, runs: Sequence[Run], accuracy: Mapping[str, float]) -> Iterator[Flag]:
    """A sign that an attack does less to the tested model than one that knows less of it.

    That is a transferred one for an attack on the model itself, and chance for a transferred one.
    """
    code: Outdone = "weaker_than_chance" if run.made_on else "weaker_than_transfer"
    weaker = [of for of in runs if (_is_random(of.attack) if run.made_on else of.made_on)]
    same_kind = [accuracy[of.label] for of in weaker if of.attack.kind == run.attack.kind]
    if not run.is_control:
        yield from weaker_than(accuracy[run.label], min(same_kind, default=1.0), code)


def _is_random(attack: Attack) -> bool:
    return type(attack) is type(BASELINES[attack.kind])


def _tell(name: str, flags: Sequence[Flag]) -> None:
    for flag in flags:
        log.warning("%s: %s", name, flag)


@dataclass(frozen=True, eq=False)
class Attacker:
    """Runs attacks on one graph with one budget from one seed, or takes them from the store.

    On a terminal it shows a bar of each attack's forward passes, elsewhere a line a minute.
    """

    task: Task
    budget: Budget  # resolved
    seed: int
    store: ArtifactStore
    knows_labels: bool  # every attack is handed the true classes, not the worst case's alone
    shows_progress: bool = False

    def __call__(self, run: Run) -> AttackOutcome:
        """Perturb the graph, unless the store has it, and audit the result.

        Raises:
            AttackError: The model cannot be attacked so, or no model can be run on the result.
        """
        told = self._told(run.attack, run.attacked.model)
        x, edge_index, *known = told.values()
        key = {
            "graph": tensor_hash(x, edge_index, self.task.reach, *known),
            "attacked": run.attacked.state,
            "budget": asdict(self.budget),
            "seed": self.seed,
            **computed_by(),
            **by_content(run.cache_key),
        }
        parts = KeptParts(self.store, key, Effort())
        try:
            artifact, reused = self.store.get_or_compute(
                "graph", key, lambda: self._perturb(run, told, parts)
            )
        except AttackError as error:
            if not run.made_on:
                raise
            raise AttackError(f"surrogates[{run.made_on}]: {error}") from error
        if isinstance(run.attack, Ensemble):
            parts.discard()
        graph, model = self._unpack(artifact), run.attacked.model.to(self.task.device)
        logits = [self.task.logits_of(model, of, self.seed) for of in (self.task.graph, graph)]
        before, after = (self.task.accuracy(of) for of in logits)
        spent = spent_budget(self.task.graph, graph)
        baseline = BASELINES[run.attack.kind]
        chance = None if _is_random(run.attack) else partial(self._accuracy_under, baseline, model)
        attempt = partial(Attempt, self.task, model, run.attack, self.budget, self.seed)
        flags = attack_flags(attempt(graph, spent, logits[0], logits[1], chance))
        _tell(f"{run.label}, crafted on {run.made_on}" if run.made_on else run.label, flags)
        effort = artifact.metadata["effort"]
        change = f"{100 * before:.2f} % -> {100 * after:.2f} %"
        cost = f"{effort['forwards']} forward passes, {effort['seconds']:.1f} s"
        cost += ", taken from the store" * reused
        log.info("%s: accuracy of the attacked model %s in %s", run.label, change, cost)
        path = self.store.path("graph", key)
        return AttackOutcome(graph, spent, before, after, flags, effort, path, reused)

    def _told(self, attack: Attack, model: nn.Module) -> dict[str, Tensor]:
        knows_labels, placed = self.knows_labels or attack.is_worst_case, model.to(self.task.device)
        return self.task.told(placed, self.seed, knows_labels=knows_labels)

    def _accuracy_under(self, attack: Attack, model: nn.Module) -> float:
        graph = self._run(attack, model, self._told(attack, model))
        return self.task.accuracy(self.task.logits_of(model, graph, self.seed))

    def _run(
        self,
        attack: Attack,
        model: nn.Module,
        given: Mapping[str, Tensor],
        parts: KeptParts | None = None,
    ) -> PerturbedGraph:
        name, model = type(attack).__name__, model.to(self.task.device)
        perturb: Callable[..., PerturbedGraph] = attack
        if parts is not None and isinstance(attack, Ensemble):
            perturb = partial(attack.run, keep=parts)
        weights = state_hash(dict(model.named_parameters()))
        # A copy of the graph, which the attack may write to.
        told = Data(**{key: tensor.clone() for key, tensor in given.items()})
        with seeded(self.seed):  # a model may sample by the global generator
            perturbed = perturb(
                model,
                told.to(self.task.device),
                self.task.reach.clone().to(self.task.device),
                self.budget,
                torch.Generator().manual_seed(self.seed),
            )
        model.eval()
        if state_hash(dict(model.named_parameters())) != weights:
            raise AttackError(f"{name}: changes the weights of the attacked model; work on a copy")
        if wrong := _unfit(perturbed, self.task.graph["x"]):
            raise AttackError(f"{name}: returns {wrong}")
        x, edge_index = perturbed.x.detach().cpu(), perturbed.edge_index.cpu()
        return replace(perturbed, x=x, edge_index=edge_index)

    def _perturb(self, run: Run, told: Mapping[str, Tensor], parts: KeptParts) -> Artifact:
        model = run.attacked.model
        passes = expected_forwards(run.attack), "forward passes"
        with (
            Progress(run.label, *passes, shown=self.shows_progress) as parts.effort.tell,
            parts.effort.of(model, run.attack, self.budget, self.task),
        ):
            perturbed = self._run(run.attack, model, told, parts)
        parts.effort.reach(self.task.accuracy(self.task.logits_of(model, perturbed, self.seed)))
        # What differs from the clean features, since those of a wide graph would fill the disk.
        n = perturbed.num_original_nodes
        changed = (perturbed.x[:n] != self.task.graph["x"]).any(1).nonzero().squeeze(1)
        tensors = {
            "injected_x": perturbed.x[n:],
            "changed_nodes": changed,
            "changed_x": perturbed.x[changed],
            "edge_index": perturbed.edge_index,
        }
        reached = {key: getattr(perturbed, key) for key in OF_PARTS}
        return Artifact(tensors, {"effort": parts.effort.since(), **reached})

    def _unpack(self, artifact: Artifact) -> PerturbedGraph:
        tensors, original = artifact.tensors, self.task.graph["x"]
        if tensors["changed_nodes"].numel():
            original = original.index_copy(0, tensors["changed_nodes"], tensors["changed_x"])
        x = torch.cat([original, tensors["injected_x"]])
        parts = {key: artifact.metadata[key] for key in OF_PARTS}
        return PerturbedGraph(x, tensors["edge_index"], original.size(0), **parts)


def _unfit(perturbed: object, clean: Tensor) -> str | None:
    """A reason why no model can be run on a result; what else is wrong the auditor tells."""
    if not isinstance(perturbed, PerturbedGraph):
        return f"a {type(perturbed).__name__}; it must return a PerturbedGraph"
    x, edges, kept = perturbed.x, perturbed.edge_index, perturbed.num_original_nodes
    n, width = clean.shape
    if edges.dtype != torch.int64 or edges.ndim != 2 or edges.size(0) != 2:
        shape = tuple(edges.shape)
        return f"edges of {edges.dtype} and shape {shape}; they must be of torch.int64 and 2 x e"
    shaped = x.dtype == clean.dtype and x.ndim == 2 and x.size(1) == width
    if not shaped or not n == kept <= x.size(0):
        return (
            f"features of {x.dtype} and shape {tuple(x.shape)}, {kept} rows of them original; it "
            f"must keep the {n} x {width} of {clean.dtype} of the clean graph, and may add rows"
        )
    outside = edges[(edges < 0) | (edges >= x.size(0))]
    if outside.numel():
        return f"an edge of node {int(outside[0])}; its nodes are 0..{x.size(0) - 1}"
    return None
