"""Perturbed graphs: each is computed once, kept in the store, counted and checked."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
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
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import frozen
from robust_diffusion.attacks.ensemble import Ensemble
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.errors import AttackError
from robust_diffusion.evaluation.content import by_content
from robust_diffusion.evaluation.flags import (
    Flag,
    budget_allows_nothing,
    budget_unspent,
    gradient_flags,
    is_blind_to_edges,
    loss_without_errors,
    no_effect,
    of_the_row,
    parts_given_up,
    weaker_than,
)
from robust_diffusion.evaluation.kept_parts import KeptParts
from robust_diffusion.evaluation.subject import Task
from robust_diffusion.evaluation.threat import AttackedModel
from robust_diffusion.evaluation.trained import computed_by
from robust_diffusion.hashes import state_hash, tensor_hash
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.checked import sees_edges
from robust_diffusion.store import Artifact, ArtifactStore

log = logging.getLogger(__name__)

OF_PARTS = ("part_accuracy", "part", "given_up")
"""Fields of a perturbed graph that tell of the parts of its attack."""

BASELINES: dict[str, Attack] = {"injection": RandomInjection(), "modification": RandomFlip()}
"""Chance with the same budget, which an attack of each kind has to beat."""


@dataclass(frozen=True, eq=False)
class AttackOutcome:
    """The result of one attack on one model; its time is that of whenever it was computed."""

    graph: PerturbedGraph
    spent: SpentBudget
    accuracy: float  # of the attacked model at the target nodes, in 0..1
    flags: list[Flag]
    seconds: float
    path: Path  # of the entry in the store
    reused: bool


@dataclass(frozen=True, eq=False)
class Attacker:
    """Runs attacks on one graph with one budget from one seed, or takes them from the store."""

    task: Task
    budget: Budget  # resolved
    seed: int
    store: ArtifactStore
    knows_labels: bool  # every attack is handed the true classes, not the worst case's alone

    def __call__(
        self, name: str, attack: Attack, attacked: AttackedModel, cache_key: Mapping[str, Any]
    ) -> AttackOutcome:
        """Perturb the graph, unless the store has it, and audit the result.

        The name is for the log, the key the configuration of the attack and the attacked model.
        """
        key = {
            "graph": self._fingerprint(attack),
            "attacked": attacked.state,
            "budget": asdict(self.budget),
            "seed": self.seed,
            **computed_by(),
            **by_content(cache_key),
        }
        parts = KeptParts(self.store, key)
        artifact, reused = self.store.get_or_compute(
            "graph", key, lambda: self._perturb(attack, attacked, parts)
        )
        if isinstance(attack, Ensemble):
            parts.discard()
        if reused:
            log.info("%s: attacked before, taken from the store", name)
        perturbed = self._unpack(artifact)
        after = self._logits(attacked, perturbed)
        accuracy = self.task.accuracy(after)
        spent = spent_budget(self.task.graph, perturbed)
        flags = [*self._audit(attack, perturbed), *self._misled(attack, attacked, perturbed, after)]
        # A worst case has tried the whole budget as well as less.
        is_one_try = attack.kind == "injection" and not attack.is_worst_case
        if is_one_try and (flag := budget_unspent(self.budget, spent)):
            flags.append(flag)
        flags = of_the_row(flags, accuracy)
        for flag in flags:
            log.warning("%s: %s", name, flag)
        return AttackOutcome(
            graph=perturbed,
            spent=spent,
            accuracy=accuracy,
            flags=flags,
            seconds=artifact.metadata["seconds"],
            path=self.store.path("graph", key),
            reused=reused,
        )

    def clean_accuracy(self, attacked: AttackedModel) -> float:
        """Accuracy of a model at the target nodes of the clean graph, in 0..1."""
        return self.task.accuracy(self._logits(attacked))

    def _known(self, attack: Attack) -> Data:
        """The graph as the attacker is told of it, a copy that it may write to."""
        return Data(**{key: self.task.graph[key].clone() for key in self._told(attack)})

    def _told(self, attack: Attack) -> list[str]:
        return ["x", "edge_index", *(["y"] if self.knows_labels or attack.is_worst_case else [])]

    def _fingerprint(self, attack: Attack) -> str:
        x, edge_index, *y = (self.task.graph[key] for key in self._told(attack))
        return tensor_hash(x, edge_index, self.task.targets, *y)

    def _run(
        self, attack: Attack, attacked: AttackedModel, parts: KeptParts | None = None
    ) -> PerturbedGraph:
        name, model = type(attack).__name__, attacked.model.to(self.task.device)
        perturb: Callable[..., PerturbedGraph] = attack
        if parts is not None and isinstance(attack, Ensemble):
            perturb = partial(attack.run, keep=parts)
        weights = state_hash(dict(model.named_parameters()))
        with seeded(self.seed):  # a model may sample by the global generator
            perturbed = perturb(
                model,
                self._known(attack).to(self.task.device),
                self.task.targets.clone().to(self.task.device),
                self.budget,
                torch.Generator().manual_seed(self.seed),
            )
        model.eval()
        if state_hash(dict(model.named_parameters())) != weights:
            raise AttackError(f"{name}: changes the weights of the attacked model; work on a copy")
        self._check_graph(perturbed, name)
        x, edge_index = perturbed.x.detach().cpu(), perturbed.edge_index.cpu()
        return replace(perturbed, x=x, edge_index=edge_index)

    def _check_graph(self, perturbed: object, name: str) -> None:
        """Refuse what no model can be run on, before it is stored; the auditor tells the rest."""
        if not isinstance(perturbed, PerturbedGraph):
            raise AttackError(
                f"{name}: returns a {type(perturbed).__name__}; it must return a PerturbedGraph"
            )
        x, edges = perturbed.x, perturbed.edge_index
        n, width = self.task.graph["x"].shape
        if edges.dtype != torch.int64 or edges.ndim != 2 or edges.size(0) != 2:
            raise AttackError(
                f"{name}: returns edges of {edges.dtype} and shape {tuple(edges.shape)}; they must "
                "be of torch.int64 and 2 x e"
            )
        if x.dtype != self.task.graph["x"].dtype or x.ndim != 2:
            raise AttackError(
                f"{name}: returns features of {x.dtype} and shape {tuple(x.shape)}; they must be "
                f"of {self.task.graph['x'].dtype}, a row per node"
            )
        if x.size(1) != width or not n == perturbed.num_original_nodes <= x.size(0):
            raise AttackError(
                f"{name}: returns features of shape {tuple(x.shape)}, "
                f"{perturbed.num_original_nodes} rows of them original; it must keep the {n} x "
                f"{width} of the clean graph, and may add rows"
            )
        if edges.numel() and (edges.min() < 0 or edges.max() >= x.size(0)):
            wrong = int(edges.min() if edges.min() < 0 else edges.max())
            raise AttackError(
                f"{name}: returns an edge of node {wrong}; its nodes are 0..{x.size(0) - 1}"
            )

    def _perturb(self, attack: Attack, attacked: AttackedModel, parts: KeptParts) -> Artifact:
        start = time.perf_counter()
        perturbed = self._run(attack, attacked, parts)
        seconds = time.perf_counter() - start + parts.seconds
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
        return Artifact(tensors, {"seconds": seconds, **reached})

    def _unpack(self, artifact: Artifact) -> PerturbedGraph:
        tensors, original = artifact.tensors, self.task.graph["x"]
        if tensors["changed_nodes"].numel():
            original = original.index_copy(0, tensors["changed_nodes"], tensors["changed_x"])
        x = torch.cat([original, tensors["injected_x"]])
        parts = {key: artifact.metadata[key] for key in OF_PARTS}
        return PerturbedGraph(x, tensors["edge_index"], original.size(0), **parts)

    def _misled(
        self, attack: Attack, attacked: AttackedModel, graph: PerturbedGraph, after: Tensor
    ) -> Iterator[Flag]:
        """Signs that the attack found less harm than there is."""
        task, model, budget = self.task, attacked.model, self.budget
        shares = budget.injected_degrees, (budget.edge_ratio, budget.node_ratio)
        if not any(shares[attack.kind == "modification"]):
            return  # nothing was allowed
        before = self._logits(attacked)
        idle, given_up = no_effect(before.argmax(1), after.argmax(1)), graph.given_up
        by_features = attack.is_worst_case or "feature_gradient" in attack.needs
        x, edge_index = (task.graph[key].to(task.device) for key in ("x", "edge_index"))
        with frozen(model), seeded(self.seed):
            if len(graph.x) > len(x):
                attacked_x, edges = graph.x.to(task.device), graph.edge_index.to(task.device)
                there = replace(graph, x=attacked_x, edge_index=edges)
                targets = task.targets.to(task.device)
                if is_blind_to_edges(model, there, targets):
                    return
                # A worst case differentiates the adaptive form as well.
                seen = adaptive_form(model) if attack.is_worst_case else model
                yield from gradient_flags(seen, there, targets) if by_features else ()
            elif (idle or given_up) and not sees_edges(model, x, edge_index):
                given_up = {k: why for k, why in given_up.items() if "edge weights" not in why}
                idle = idle if by_features else None
        if flag := parts_given_up(given_up, len(graph.part_accuracy)):
            yield flag
        if idle:
            yield self._nothing_allowed(attack, graph) or idle
        elif type(attack) is not type(baseline := BASELINES[attack.kind]):
            by_chance = task.accuracy(self._logits(attacked, self._run(baseline, attacked)))
            if flag := weaker_than(task.accuracy(after), by_chance, "weaker_than_chance"):
                yield flag
        if flag := loss_without_errors(before, after, task.labels):
            yield flag

    def _nothing_allowed(self, attack: Attack, graph: PerturbedGraph) -> Flag | None:
        """The share of the budget that is too small, if a modification changes nothing."""
        x, edge_index = (self.task.graph[key] for key in ("x", "edge_index"))
        unchanged = torch.equal(graph.x, x) and torch.equal(graph.edge_index, edge_index)
        if attack.kind == "injection" or not unchanged:
            return None
        edges = edges_at(self.task.targets, edge_index, len(x)).size(1)
        return budget_allows_nothing(self.budget, self.task.targets.numel(), edges)

    def _logits(
        self, attacked: AttackedModel, graph: PerturbedGraph | None = None
    ) -> Float[Tensor, "t c"]:
        model = attacked.model.to(self.task.device)
        return self.task.logits_of(model, self.task.graph if graph is None else graph, self.seed)

    def _audit(self, attack: Attack, perturbed: PerturbedGraph) -> list[Flag]:
        limits = asdict(self.budget) | dict.fromkeys(attack.unbounded)
        found = audit(
            self.task.graph,
            perturbed,
            kind=attack.kind,
            target_nodes=self.task.targets,
            **limits,
        )
        return [Flag("budget_overspent", violation.message) for violation in found]
