"""One attack on one victim, with its cost and flags; and tests of a victim on attacked graphs."""

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

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, Task, seeded, spent_budget
from robust_diffusion.attacks.base import GivenUp
from robust_diffusion.attacks.ensemble import Ensemble
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.attacks.task import Knowledge
from robust_diffusion.data.validate import finite_rows
from robust_diffusion.errors import AttackError
from robust_diffusion.evaluation.flag_codes import DECLARED
from robust_diffusion.evaluation.flags import (
    AttackResult,
    Flag,
    Outdone,
    attack_flags,
    control_of,
    is_random,
    of_the_row,
    one_class,
    prediction_flags,
    random_flags,
    weaker_than,
)
from robust_diffusion.evaluation.threat import ThreatModel
from robust_diffusion.models.victim import Victim
from robust_diffusion.operators import AnyFeatures
from robust_diffusion.records.content import by_content, computed_by
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from robust_diffusion.system.progress import Progress
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

log = logging.getLogger(__name__)

Cache = Callable[[Mapping[str, Any], Callable[[], Artifact]], tuple[Artifact, bool]]

_Step = Sequence[float]
"""Forward passes and seconds so far, and the accuracy in 0..1; a list if read from JSON."""

OF_PARTS = ("part_accuracy", "part", "given_up")
"""Fields of a perturbed graph that describe the parts of its attack."""


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
    def of(self, victim: Victim, attack: Attack, budget: Budget, task: Task) -> Iterator[None]:
        """Count forward passes of the victim, and of its forms, within the context."""
        n, e = task.x.size(0), task.edge_index.size(1)
        grows = attack.kind == "injection"
        nodes = budget.max_injected_nodes if grows else 0
        there = edges_at(task.reach, task.edge_index, n).size(1)
        edges = sum(budget.injected_degrees) if grows else budget.max_flipped_edges(there)
        targets, labels = task.targets.to(victim.device), task.labels.to(victim.device)
        counted = victim.forwards

        def note(
            x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None, logits: Tensor
        ) -> None:
            nonlocal counted
            self.forwards += victim.forwards - counted
            self.tell(victim.forwards - counted)
            counted = victim.forwards
            if edge_weight is not None or x.size(0) > n + nodes:
                return
            if abs(edge_index.size(1) - e) <= 2 * edges:
                right = (logits.detach()[targets].argmax(1) == labels).sum()
                self.reach(int(right) / max(len(labels), 1))

        with victim.passes.watched(note):
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


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Conditions that all attacks of an evaluation share."""

    budget: Budget  # resolved
    threat: ThreatModel
    cache: ArtifactStore | None = None  # of attacked graphs
    shows_progress: bool = False
    falls_back: bool = False  # whether an ensemble returns the control's graph if it does more harm

    def known_to(self, attack: Attack) -> Knowledge:
        """Return the classes that an attack uses."""
        return "labels" if attack.is_worst_case else self.threat.attacker_knows


def measure(
    victim: Victim,
    task: Task,
    attack: Attack,
    bench: Bench,
    *,
    name: str = "",
    row: str = "",
    surrogate: str = "",
    control: AttackResult | None = None,
    key: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> AttackResult:
    """Run an attack on a victim, unless the cache has its graph, and check the result.

    Progress in forward passes is shown as a bar on a terminal, and logged once a minute elsewhere.

    Args:
        victim: The attacked model, within its context.
        task: The evaluation's task, with the true classes.
        attack: The attack.
        bench: Conditions that all attacks share.
        name: Unique name of the attacked graph; that of the attack by default.
        row: Row of a table that shows the graph, perhaps with others; the name by default.
        surrogate: Name of the attacked model; "" for the tested one.
        control: The random control of this attack on the same victim; `None` for one that is not
            compared with it, such as the control itself or a poisoning.
        key: Key of attack and model in the cache.
        quiet: Whether to log nothing.

    Raises:
        AttackError: The attack cannot run on this model, or returns no valid graph.
    """
    name = name or attack.name
    try:
        graph, effort, file, reused = _crafted(victim, task, attack, bench, name, control, key)
        if bench.falls_back and control is not None and isinstance(attack, Ensemble):
            graph = _or_control(victim, task, graph, control)
        result = assess(victim, task, attack, bench.budget, graph, effort, control=control)
    except AttackError as error:
        if not surrogate:
            raise
        raise AttackError(f"surrogates[{surrogate}]: {error}") from error
    result = replace(result, name=name, row=row or name, surrogate=surrogate)
    result = replace(result, file=file, reused=reused)
    title = f"{name}, crafted on {surrogate}" if surrogate else name
    if reused:  # its warnings were logged by the original run, and are in the record
        log.info("%s: reusing the cached graph", title)
    elif not quiet:
        change = f"{100 * result.clean_accuracy:.2f} -> {100 * result.accuracy:.2f} %"
        cost = f"{effort['forwards']} forward passes, {effort['seconds']:.1f} s"
        log.info("%s: accuracy %s in %s", title, change, cost)
        # A surrogate's graph is shared by the models that it is transferred to.
        warn(title, result.flags, shared=bool(surrogate))
    return result


def assess(
    victim: Victim,
    task: Task,
    attack: Attack,
    budget: Budget,
    graph: PerturbedGraph,
    effort: Mapping[str, Any],
    *,
    control: AttackResult | None = None,
) -> AttackResult:
    """Test a victim on the graph of an attack on it, and collect the flags."""
    result = AttackResult(
        name=attack.name,
        row=attack.name,
        attack=attack,
        budget=budget,
        graph=graph,
        labels=task.labels,
        before=victim.clean_predictions(task.seed)[task.targets],
        after=victim.predict(graph, task.seed)[task.targets],
        spent=spent_budget(task.graph, graph),
        effort=effort,
        chance=None if control is None else control.accuracy,
        victim=victim,
    )
    return replace(result, flags=attack_flags(victim, task, result))


def controls_of(
    victim: Victim, task: Task, attacks: Mapping[str, Attack], bench: Bench
) -> dict[str, AttackResult]:
    """Return the random control of each kind of attack on this victim, without a cache."""
    plain = replace(bench, cache=None, shows_progress=False)
    controls = {attack.kind: control_of(attack) for attack in attacks.values()}
    return {
        kind: measure(victim, task, control, plain, quiet=True)
        for kind, control in controls.items()
    }


def _crafted(
    victim: Victim,
    task: Task,
    attack: Attack,
    bench: Bench,
    name: str,
    control: AttackResult | None,
    cache_key: Mapping[str, Any] | None,
) -> tuple[PerturbedGraph, Mapping[str, Any], str, bool]:
    """Return the graph, its effort, its file in the cache, and whether it was reused."""
    view = task.attacker_view(victim, bench.known_to(attack))
    timed = partial(_timed, victim, task, view, attack, bench, name, control)
    if bench.cache is None:
        effort = Effort()
        return timed(effort), effort.since(), "", False
    # What the attack knows, and the true classes, from which the effort's accuracies are computed.
    known = [view.all_labels, *([view.graph.index_train] if task.poisons else [])]
    key = {
        "graph": tensor_hash(task.x, task.edge_index, task.targets, task.labels, *known),
        "attacked": victim.weights,
        "budget": asdict(bench.budget),
        "seed": task.seed,
        **computed_by(),
        **by_content(cache_key or {}),
    }
    file = bench.cache.path("graph", key)
    # The parts of one graph share a kind, so that they can be discarded by their file names.
    kind = f"part-{file.stem.removeprefix('graph-')[:16]}"
    effort, made = Effort(partial(bench.cache.get_or_compute, kind), key), []

    def compute() -> Artifact:
        made.append(timed(effort))
        return _packed(made[0], task.x, effort.since())

    artifact, reused = bench.cache.get_or_compute("graph", key, compute)
    if isinstance(attack, Ensemble):
        effort.report_reuse()
        bench.cache.discard(kind)  # parts of a graph with many features would fill the disk
    graph = made[0] if made else _unpacked(artifact, task.graph)
    return graph, artifact.metadata["effort"], file.name, reused


def _timed(
    victim: Victim,
    task: Task,
    view: Task,
    attack: Attack,
    bench: Bench,
    name: str,
    control: AttackResult | None,
    effort: Effort,
) -> PerturbedGraph:
    """Run an attack, showing its progress and counting its effort; check and tidy the result."""
    ensemble, budget = isinstance(attack, Ensemble), bench.budget
    if ensemble and bench.falls_back and control is not None:
        effort.known = control.accuracy
    further = {"keep": effort.keep} if ensemble else {}
    passes = attack.expected_passes(budget, view, victim)
    weights = parameter_hash(victim)
    rng = torch.Generator().manual_seed(task.seed)
    with (
        Progress(name, passes, "forward passes", shown=bench.shows_progress) as effort.tell,
        effort.of(victim, attack, budget, task),
        victim,
        seeded(task.seed),  # a model may sample from the global generator
    ):
        if attack.needs:
            effort.reach(task.accuracy(victim.clean_predictions(task.seed)))
        perturbed = attack(victim, view, budget, rng, **further)
    if parameter_hash(victim) != weights:
        raise AttackError(
            f"{type(attack).__name__}: changes the weights of the attacked model; work on a copy"
        )
    graph = tidied(perturbed, task.graph, by=type(attack).__name__)
    effort.reach(task.accuracy(victim.predict(graph, task.seed)))
    return graph


def parameter_hash(victim: Victim) -> str:
    """Return a hash of the model's parameters."""
    model = victim.model
    return state_hash(dict(model.named_parameters())) if isinstance(model, nn.Module) else ""


def tidied(perturbed: object, clean: Data, *, by: str) -> PerturbedGraph:
    """Return an attack's result on the CPU; raise an `AttackError` if no model can run on it."""
    x, n = clean["x"], len(clean["x"])
    if wrong := unfit(perturbed, x):
        raise AttackError(f"{by}: returns {wrong}")
    assert isinstance(perturbed, PerturbedGraph)
    # Unchanged rows are copied from the clean graph, since 0 and -0 are equal but hash differently.
    attacked = perturbed.x.detach().cpu()
    # No comparison of all values at once, which takes as much memory as another graph.
    edge_index = perturbed.edge_index.cpu()
    if len(attacked) > n and torch.equal(_bits(attacked[:n]), _bits(x)):
        return replace(perturbed, x=attacked, edge_index=edge_index, clean=clean)
    same = torch.equal(attacked[:n], x)
    rows = x if same else torch.where((attacked[:n] != x).any(1, keepdim=True), attacked[:n], x)
    return replace(perturbed, x=torch.cat([rows, attacked[n:]]), edge_index=edge_index, clean=clean)


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def _or_control(
    victim: Victim, task: Task, graph: PerturbedGraph, control: AttackResult
) -> PerturbedGraph:
    """Return the graph of an ensemble, or the control's if that does more harm."""
    if control.accuracy >= task.accuracy(victim.predict(graph, task.seed)):
        return graph
    parts = {**graph.part_accuracy, control.attack.name: control.accuracy}
    return replace(
        control.graph, part_accuracy=parts, part=control.attack.name, given_up=graph.given_up
    )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracies of one model on the clean graph and on the attacked graphs."""

    accuracy: dict[str, float]  # per graph, `clean` first, in 0..1
    flags: dict[str, list[Flag]]  # per row of a table, and for the `victim`
    seconds: float  # wall time of the test


def victim_flags(victim: Victim, own: Sequence[Flag] = ()) -> list[Flag]:
    """Return, and log, the flags of the tested model itself; `own` are known before."""
    flags = [*own, *random_flags(victim)]
    warn("victim", flags)
    return flags


def evaluate_on(
    victim: Victim,
    task: Task,
    results: Sequence[AttackResult],
    own_flags: Sequence[Flag],
    *,
    retrained: Mapping[str, Victim] | None = None,
) -> Evaluation:
    """Test a victim on the clean graph and on each attacked one, and collect all flags.

    Args:
        victim: The tested model.
        task: The evaluation's task.
        results: Attacks on this victim and on others.
        own_flags: Flags of the victim itself.
        retrained: Models that were trained on each attacked graph, by its name; `None` for an
            evasion.
    """
    start = time.perf_counter()
    tested = {result.name: (retrained or {}).get(result.name, victim) for result in results}
    before, after = victim.clean_predictions(task.seed)[task.targets], {}
    for result in results:
        model, name = tested[result.name], result.name
        known = model is result.victim
        after[name] = (
            result.after if known else model.predict(result.graph, task.seed)[task.targets]
        )
    seconds = time.perf_counter() - start
    accuracy = {"clean": task.share(before)} | {k: task.share(v) for k, v in after.items()}
    by_row: dict[str, list[Flag]] = {}
    lowest: dict[str, float] = {}
    for result in results:
        name, logits = result.row, after[result.name]
        crafted = result.flags
        raised = [] if retrained else list(_outdone(result, results, accuracy))
        if result.surrogate and not result.victim.has_weights_of(victim):
            # Flags that were measured on a surrogate do not apply to the tested model.
            crafted = [flag for flag in crafted if DECLARED[flag.code].of_graph]
            if not retrained:
                classes = before.argmax(1), logits.argmax(1), task.labels
                raised += of_the_row(one_class(*classes), accuracy[result.name])
        raised += prediction_flags(tested[result.name], task, result.graph, logits)
        warn(name, raised)
        by_row[name] = [*by_row.get(name, []), *crafted, *raised]
        lowest[name] = min(accuracy[result.name], lowest.get(name, 1.0))
    flags = {k: of_the_row([*found, *own_flags], lowest[k]) for k, found in by_row.items()}
    flags["victim"] = list(own_flags)
    return Evaluation(accuracy, {k: v for k, v in flags.items() if v}, seconds)


def _outdone(
    result: AttackResult, results: Sequence[AttackResult], accuracy: Mapping[str, float]
) -> Iterator[Flag]:
    """Yield a flag if an attack does less harm than one with less knowledge of the tested model.

    An attack on the model itself is compared with transferred ones, and a transferred attack with
    random ones.
    """
    code: Outdone = "weaker_than_chance" if result.surrogate else "weaker_than_transfer"
    weaker = [r for r in results if (is_random(r.attack) if result.surrogate else r.surrogate)]
    same_kind = [accuracy[r.name] for r in weaker if r.attack.kind == result.attack.kind]
    if not result.is_control:
        yield from weaker_than(accuracy[result.name], min(same_kind, default=1.0), code)


def warn(name: str, flags: Sequence[Flag], *, shared: bool = False) -> None:
    """Log flags as warnings."""
    for flag in flags:
        log.warning("%s: %s", name, flag, extra={"shared": shared})


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
    parts["given_up"] = {name: GivenUp(*part) for name, part in parts["given_up"].items()}
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
    if not (finite := finite_rows(x)).all():
        node = int((~finite).nonzero()[0])
        return f"features that are NaN or infinite, the first at node {node}; all must be finite"
    outside = edges[(edges < 0) | (edges >= x.size(0))]
    if outside.numel():
        return f"an edge of node {int(outside[0])}; its nodes are 0..{x.size(0) - 1}"
    return None
