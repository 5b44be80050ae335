"""Runs of attacks with their cost, and tests of a model on each attacked graph."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
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
    seeded,
)
from robust_diffusion.attacks.ensemble import Ensemble
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.errors import AttackError
from robust_diffusion.evaluation.flag_codes import OF_THE_GRAPH
from robust_diffusion.evaluation.flags import (
    Attempt,
    Flag,
    Outdone,
    Task,
    of_the_row,
    one_class,
    prediction_flags,
    stochastic,
    weaker_than,
)
from robust_diffusion.records.content import by_content, computed_by
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from robust_diffusion.system.progress import Progress
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

log = logging.getLogger(__name__)

Cache = Callable[[Mapping[str, Any], Callable[[], Artifact]], tuple[Artifact, bool]]

_Step = Sequence[float]
"""Forward passes and seconds so far, and the accuracy in 0..1; a list if read from JSON."""


class Effort:
    """Forward passes and wall time of an attack, and the lowest accuracy it has reached.

    `forwards` counts passes of the attacked model in any of its forms, and each draw of a model
    that samples. `trace` has a step for each graph with a new lowest accuracy. It only includes
    graphs within the counts of the budget, not relaxed graphs with edge weights, and uses one draw
    of a model that samples. The cache holds the parts of an ensemble until the graph is complete,
    so that an interrupted run can resume; `key` is the key of that graph.
    """

    def __init__(self, cache: Cache | None = None, key: Mapping[str, Any] | None = None) -> None:
        self._cache, self._key, self._reused = cache, key or {}, 0
        self.forwards = 0
        self.trace: list[_Step] = []
        self.known = inf  # accuracy of a graph to fall back on
        self.tell = Progress(shown=False)
        self.part = ""
        self._start = time.perf_counter()
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Wall time so far, including the original time of parts that were reused."""
        return self._before + time.perf_counter() - self._start

    @contextmanager
    def of(self, model: nn.Module, attack: Attack, budget: Budget, task: Task) -> Iterator[None]:
        """Count forward passes of the model, and of copies made within the context."""
        n, e = task.graph.num_nodes or 0, task.graph.num_edges
        grows = attack.kind == "injection"
        nodes = budget.max_injected_nodes if grows else 0
        there = edges_at(task.reach, task.graph["edge_index"], n).size(1)
        edges = sum(budget.injected_degrees) if grows else budget.max_flipped_edges(there)

        # A function, since copying the model would also copy the object of a bound method.
        def note(
            _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], logits: Tensor
        ) -> None:
            self.forwards += 1
            self.tell(1)
            if named or len(inputs) != 2:  # edge weights, or custom argument names
                return
            x, edge_index = inputs
            if x.size(0) > n + nodes or abs(edge_index.size(1) - e) > 2 * edges:
                return
            of_targets = logits.detach()[task.targets.to(logits.device)].cpu()
            self.reach(task.accuracy(of_targets))

        with model.register_forward_hook(note, with_kwargs=True):
            yield

    def keep(self, name: str, compute: Callable[[], Artifact]) -> Artifact:
        """Return a part of this name, from the cache or computed; see `attacks.ensemble.Keep`."""

        def timed() -> Artifact:
            self.report_reuse()
            self.at(name)
            before = self.forwards, self.seconds, len(self.trace)
            made = compute()
            return Artifact(made.tensors, {"effort": self.since(*before), "found": made.metadata})

        key = {"part": name, **self._key}
        part, reused = self._cache(key, timed) if self._cache else (timed(), False)
        if reused:
            self._reused += 1
            self.add(**part.metadata["effort"])
        return Artifact(part.tensors, part.metadata["found"])

    def report_reuse(self) -> None:
        """Log how many parts the cache had since the last call."""
        if self._reused:
            log.info("%d parts: reusing cached results", self._reused)
            self._reused = 0

    def since(self, forwards: int = 0, seconds: float = 0.0, steps: int = 0) -> dict[str, Any]:
        """Return forward passes, seconds and steps of the trace after those counts, as JSON."""
        return {
            "forwards": self.forwards - forwards,
            "seconds": self.seconds - seconds,
            "trace": [(f - forwards, s - seconds, a) for f, s, a in self.trace[steps:]],
        }

    def add(self, forwards: int, seconds: float, trace: Sequence[_Step]) -> None:
        """Add the effort of an earlier run, in the form that `since` returns."""
        for f, s, accuracy in trace:
            self.reach(accuracy, f, s)
        self.forwards += forwards
        self._before += seconds
        self.tell(forwards, free=forwards)

    def reach(self, accuracy: float, forwards: float = 0, seconds: float = 0) -> None:
        """Add a step to the trace if the accuracy is a new lowest, at an offset from now."""
        if not self.trace or accuracy < self.trace[-1][2]:
            self.trace.append((self.forwards + forwards, self.seconds + seconds, accuracy))
            self.at(self.part)

    def at(self, part: str) -> None:
        """Show the current part of the attack and the lowest accuracy so far as progress."""
        self.part, lowest = part, min([self.known, *(step[2] for step in self.trace[-1:])])
        shown = f"accuracy {100 * lowest:.2f} %" if lowest < inf else ""
        self.tell(note=", ".join(filter(None, (shown, part))))


OF_PARTS = ("part_accuracy", "part", "given_up")
"""Fields of a perturbed graph that describe the parts of its attack."""

BASELINES: dict[str, Attack] = {"injection": RandomInjection(), "modification": RandomFlip()}
"""Random attack of each kind; the control that every attack has to beat with the same budget."""


@dataclass(frozen=True, eq=False)
class AttackRun:
    """One attack on one model."""

    label: str  # unique label of the attacked graph
    attack: Attack
    model: nn.Module  # the model that the attack sees, in eval mode
    state: str  # hash of its weights and buffers
    cache_key: Mapping[str, Any]  # key of attack and model in the cache
    made_on: str  # name of a surrogate; "" for the tested model
    row: str  # name under which a table shows this run and others

    @property
    def is_control(self) -> bool:
        """True if this is the random control."""
        return self.attack is BASELINES[self.attack.kind]


def runs_on(
    models: Mapping[str, tuple[nn.Module, str]],
    attacks: Mapping[str, Attack],
    key: Callable[[str, str], Mapping[str, Any]],
    *,
    by_attack: bool = False,
) -> list[AttackRun]:
    """Combine every attack with every model; models and hashes by a surrogate's name or ""."""
    plain = {*models} if by_attack and len(models) == 1 else {""}
    runs = []
    for on, model in models.items():
        for name, attack in attacks.items():
            label = name if on in plain else f"{name}/{on}"
            row = name if by_attack else label
            runs.append(AttackRun(label, attack, *model, key(name, on), on, row))
    return runs


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracies of one model on the clean graph and on the attacked graphs."""

    accuracy: dict[str, float]  # per label, `clean` first, in 0..1
    outcomes: dict[str, Attempt]  # per label
    flags: dict[str, list[Flag]]  # per attack, and for the `victim`; empty lists are left out
    seconds: float  # wall time of the test


def evaluate_on(
    attacker: "Attacker",
    model: nn.Module,
    runs: Sequence[AttackRun],
    *,
    own_flags: Sequence[Flag] = (),
    retrain: Callable[[str, PerturbedGraph], nn.Module] | None = None,
) -> Evaluation:
    """Check a model, run attacks, test it on the clean and each attacked graph, collect all flags.

    `retrain` trains a new model on each attacked graph, by its label; `None` for an evasion.
    `own_flags` are known flags of the model.
    """
    task = attacker.task
    victim_flags = [*own_flags, *stochastic(model, task)]
    _tell("victim", victim_flags)
    outcomes = {run.label: attacker(run) for run in runs}
    retrained = {k: retrain(k, outcome.graph) for k, outcome in outcomes.items()} if retrain else {}
    start = time.perf_counter()
    tested = {label: retrained.get(label, model) for label in outcomes}
    logits = {k: task.logits_of(tested[k], outcome.graph) for k, outcome in outcomes.items()}
    logits = {"clean": task.logits_of(model, task.graph), **logits}
    accuracy = {label: task.accuracy(target_logits) for label, target_logits in logits.items()}
    seconds = time.perf_counter() - start
    weights = state_hash(model.state_dict())
    by_row: dict[str, list[Flag]] = {}
    lowest: dict[str, float] = {}
    for run in runs:
        row, outcome, after = run.row, outcomes[run.label], logits[run.label]
        crafted, raised = outcome.flags, [] if retrained else list(_outdone(run, runs, accuracy))
        if run.made_on and run.state != weights:
            # Flags that were measured on a surrogate do not apply to the tested model.
            crafted = [flag for flag in crafted if flag.code in OF_THE_GRAPH]
            if not retrained:
                classes = logits["clean"].argmax(1), after.argmax(1), task.labels
                raised += of_the_row(one_class(*classes), accuracy[run.label])
        raised += prediction_flags(tested[run.label], task, outcome.graph, after)
        _tell(row, raised)
        by_row[row] = [*by_row.get(row, []), *crafted, *raised]
        lowest[row] = min(accuracy[run.label], lowest.get(row, 1.0))
    flags = {row: of_the_row([*signs, *victim_flags], lowest[row]) for row, signs in by_row.items()}
    flags["victim"] = victim_flags
    return Evaluation(accuracy, outcomes, {k: v for k, v in flags.items() if v}, seconds)


def _outdone(
    run: AttackRun, runs: Sequence[AttackRun], accuracy: Mapping[str, float]
) -> Iterator[Flag]:
    """Yield a flag if an attack does less harm than one with less knowledge of the tested model.

    An attack on the model itself is compared with transferred ones, and a transferred attack with
    random ones.
    """
    code: Outdone = "weaker_than_chance" if run.made_on else "weaker_than_transfer"
    weaker = [r for r in runs if (_is_random(r.attack) if run.made_on else r.made_on)]
    same_kind = [accuracy[r.label] for r in weaker if r.attack.kind == run.attack.kind]
    if not run.is_control:
        yield from weaker_than(accuracy[run.label], min(same_kind, default=1.0), code)


def _is_random(attack: Attack) -> bool:
    return type(attack) is type(BASELINES[attack.kind])


def _tell(name: str, flags: Sequence[Flag], *, shared: bool = False) -> None:
    for flag in flags:
        log.warning("%s: %s", name, flag, extra={"shared": shared})


@dataclass(frozen=True, eq=False)
class Attacker:
    """Runs attacks on one task with one budget, reusing cached graphs.

    Progress in forward passes is shown as a bar on a terminal, and logged once a minute elsewhere.
    """

    task: Task
    budget: Budget  # resolved
    cache: ArtifactStore | None = None
    knows_labels: bool = False  # whether all attacks know the true classes, not just the worst case
    shows_progress: bool = False
    falls_back: bool = False  # whether an ensemble returns the control's graph if it does more harm

    def __call__(self, run: AttackRun) -> Attempt:
        """Perturb the graph, unless the cache has it, and check the result."""
        task, model = self.task, run.model.to(self.task.device)
        chance = None if _is_random(run.attack) else partial(self._chance, run)
        try:
            graph, effort, file, reused = self._crafted(run)
            if self.falls_back and isinstance(run.attack, Ensemble):
                graph = self._or_control(run, graph)
            found = graph, effort, file, reused
            made = Attempt(task, model, run.attack, self.budget, chance, *found)
        except AttackError as error:
            if not run.made_on:
                raise
            raise AttackError(f"surrogates[{run.made_on}]: {error}") from error
        if run.is_control:
            self._chance(run, made)
        name = f"{run.label}, crafted on {run.made_on}" if run.made_on else run.label
        if made.reused:  # its warnings were logged by the original run, and are in the record
            log.info("%s: reusing the cached graph", name)
            return made
        change = f"{100 * made.clean_accuracy:.2f} -> {100 * made.accuracy:.2f} %"
        cost = f"{made.effort['forwards']} forward passes, {made.effort['seconds']:.1f} s"
        shared = bool(run.made_on)  # by the models that the graph is transferred to
        log.info("%s: accuracy %s in %s", name, change, cost)
        _tell(name, made.flags, shared=shared)
        return made

    def _crafted(self, run: AttackRun) -> tuple[PerturbedGraph, Mapping[str, Any], str, bool]:
        """Return the graph, its effort, its file in the cache, and whether it was reused."""
        x, edge_index, *known = self._told(run.attack, run.model).values()
        if self.cache is None:
            effort = Effort()
            return self._timed(run, effort), effort.since(), "", False
        key = {
            "graph": tensor_hash(x, edge_index, self.task.reach, *known),
            "attacked": run.state,
            "budget": asdict(self.budget),
            "seed": self.task.seed,
            **computed_by(),
            **by_content(run.cache_key),
        }
        file = self.cache.path("graph", key)
        # The parts of one graph share a kind, so that they can be discarded by their file names.
        kind = f"part-{file.stem.removeprefix('graph-')[:16]}"
        effort, made = Effort(partial(self.cache.get_or_compute, kind), key), []

        def compute() -> Artifact:
            made.append(self._timed(run, effort))
            return _packed(made[0], x, effort.since())

        artifact, reused = self.cache.get_or_compute("graph", key, compute)
        if isinstance(run.attack, Ensemble):
            effort.report_reuse()
            self.cache.discard(kind)  # parts of a graph with many features would fill the disk
        graph = made[0] if made else _unpacked(artifact, self.task.graph)
        return graph, artifact.metadata["effort"], file.name, reused

    def _told(self, attack: Attack, model: nn.Module) -> dict[str, Tensor]:
        return self.task.told(model, knows_labels=self.knows_labels or attack.is_worst_case)

    def _chance(self, run: AttackRun, control: Attempt | None = None) -> float:
        """Return the accuracy under the control, measured once for each model."""
        task, model, baseline = self.task, run.model, BASELINES[run.attack.kind]

        def measure() -> float:
            graph = control.graph if control else self._perturbed(baseline, model)
            return task.accuracy(task.logits_of(model, graph))

        return task.once((baseline.name, self.budget), model, measure)

    def _or_control(self, run: AttackRun, graph: PerturbedGraph) -> PerturbedGraph:
        """Return the graph of an ensemble, or the control's if that does more harm."""
        control, reached = BASELINES[run.attack.kind], self._chance(run)
        if reached >= self.task.accuracy(self.task.logits_of(run.model, graph)):
            return graph
        parts = {**graph.part_accuracy, control.name: reached}
        random = self._perturbed(control, run.model)
        return replace(random, part_accuracy=parts, part=control.name, given_up=graph.given_up)

    def _timed(self, run: AttackRun, effort: Effort) -> PerturbedGraph:
        """Run an attack, showing its progress and counting its effort."""
        attack, passes = run.attack, run.attack.expected_passes(self.budget, len(self.task.reach))
        if self.falls_back and isinstance(attack, Ensemble):
            effort.known = self._chance(run)
        perturb = partial(attack.run, keep=effort.keep) if isinstance(attack, Ensemble) else attack
        with (
            Progress(run.label, passes, "forward passes", shown=self.shows_progress) as effort.tell,
            effort.of(run.model, attack, self.budget, self.task),
        ):
            graph = self._perturbed(attack, run.model, perturb)
        effort.reach(self.task.accuracy(self.task.logits_of(run.model, graph)))
        return graph

    def _perturbed(
        self, attack: Attack, model: nn.Module, perturb: Callable[..., PerturbedGraph] | None = None
    ) -> PerturbedGraph:
        """Run an attack (through `perturb` if set) on copies; check and tidy the result."""
        name, task = type(attack).__name__, self.task
        weights = state_hash(dict(model.named_parameters()))
        # A copy, since the attack may write to the graph.
        data = Data(**{key: tensor.clone() for key, tensor in self._told(attack, model).items()})
        with seeded(task.seed):  # a model may sample from the global generator
            perturbed = (perturb or attack)(
                model,
                data.to(task.device),
                task.reach.clone().to(task.device),
                self.budget,
                torch.Generator().manual_seed(task.seed),
            )
        model.eval()
        if state_hash(dict(model.named_parameters())) != weights:
            raise AttackError(f"{name}: changes the weights of the attacked model; work on a copy")
        clean = task.graph["x"]
        if wrong := unfit(perturbed, clean):
            raise AttackError(f"{name}: returns {wrong}")
        # Unchanged rows are copied from the clean graph, since 0 and -0 are equal but hash
        # differently.
        x, n = perturbed.x.detach().cpu(), len(clean)
        rows = torch.where((x[:n] != clean).any(1, keepdim=True), x[:n], clean)
        x, edge_index = torch.cat([rows, x[n:]]), perturbed.edge_index.cpu()
        return replace(perturbed, x=x, edge_index=edge_index, clean=task.graph)


def _packed(graph: PerturbedGraph, clean: Tensor, effort: Mapping[str, Any]) -> Artifact:
    """Pack the edges and only those features that differ from the clean graph, to save space."""
    n, x = graph.num_original_nodes, graph.x
    changed = (x[:n] != clean).any(1).nonzero().squeeze(1)
    moved = {"changed_nodes": changed, "changed_x": x[changed]}
    tensors = {"injected_x": x[n:], **moved, "edge_index": graph.edge_index}
    return Artifact(tensors, {"effort": effort, **{key: getattr(graph, key) for key in OF_PARTS}})


def _unpacked(artifact: Artifact, clean: Data) -> PerturbedGraph:
    tensors = artifact.tensors
    original = clean["x"].index_copy(0, tensors["changed_nodes"], tensors["changed_x"])
    x = torch.cat([original, tensors["injected_x"]])
    parts = {key: artifact.metadata[key] for key in OF_PARTS}
    return PerturbedGraph(x, tensors["edge_index"], len(original), **parts, clean=clean)


def unfit(perturbed: object, clean: Tensor) -> str | None:
    """Return why no model can run on a result, or `None`; `audit` checks everything else."""
    if not isinstance(perturbed, PerturbedGraph):
        return f"a {type(perturbed).__name__}; it must return a PerturbedGraph"
    x, edges, rows = perturbed.x, perturbed.edge_index, perturbed.num_original_nodes
    n, width = clean.shape
    if edges.dtype != torch.int64 or edges.ndim != 2 or edges.size(0) != 2:
        shape = tuple(edges.shape)
        return f"edges of {edges.dtype} and shape {shape}; they must be of torch.int64 and 2 x e"
    shaped = x.dtype == clean.dtype and x.ndim == 2 and x.size(1) == width
    if not shaped or not n == rows <= x.size(0):
        return (
            f"features of {x.dtype} and shape {tuple(x.shape)}, {rows} rows of them original; it "
            f"must keep the {n} x {width} of {clean.dtype} of the clean graph, and may add rows"
        )
    if not (finite := x.isfinite().all(1)).all():
        node = int((~finite).nonzero()[0])
        return f"features that are NaN or infinite, the first at node {node}; all must be finite"
    outside = edges[(edges < 0) | (edges >= x.size(0))]
    if outside.numel():
        return f"an edge of node {int(outside[0])}; its nodes are 0..{x.size(0) - 1}"
    return None
