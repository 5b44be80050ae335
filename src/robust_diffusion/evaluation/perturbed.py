"""Perturbed graphs: each is computed once, kept in the store, counted and checked."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
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
from robust_diffusion.errors import AttackError
from robust_diffusion.evaluation.content import by_content
from robust_diffusion.evaluation.flags import (
    Flag,
    budget_unspent,
    gradient_flags,
    is_blind_to_edges,
    loss_without_errors,
    no_effect,
    weaker_than,
)
from robust_diffusion.evaluation.kept_parts import KeptParts
from robust_diffusion.evaluation.threat import AttackedModel
from robust_diffusion.evaluation.trained import computed_by
from robust_diffusion.hashes import tensor_hash
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.store import Artifact, ArtifactStore

log = logging.getLogger(__name__)

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

    graph: Data  # clean, features normalised, with true classes
    target_nodes: Int[Tensor, " t"]
    budget: Budget  # resolved
    seed: int
    store: ArtifactStore
    knows_labels: bool  # every attack is handed the true classes, not the worst case's alone
    device: torch.device

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
        accuracy = self._accuracy(after)
        spent = spent_budget(self.graph, perturbed)
        flags = [*self._audit(attack, perturbed), *self._misled(attack, attacked, perturbed, after)]
        # A worst case has tried the whole budget as well as less.
        is_one_try = attack.kind == "injection" and not attack.is_worst_case
        if is_one_try and (flag := budget_unspent(self.budget, spent)):
            flags.append(flag)
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
        return self._accuracy(self._logits(attacked))

    def _fingerprint(self, attack: Attack) -> str:
        assert self.graph.x is not None
        assert self.graph.edge_index is not None
        parts = [self.graph.x, self.graph.edge_index, self.target_nodes]
        if self.knows_labels or attack.is_worst_case:
            assert isinstance(self.graph.y, Tensor)
            parts.append(self.graph.y)
        return tensor_hash(*parts)

    def _run(
        self, attack: Attack, attacked: AttackedModel, parts: KeptParts | None = None
    ) -> PerturbedGraph:
        known = Data(x=self.graph.x, edge_index=self.graph.edge_index)
        if self.knows_labels or attack.is_worst_case:
            known.y = self.graph.y
        perturb: Callable[..., PerturbedGraph] = attack
        if parts is not None and isinstance(attack, Ensemble):
            perturb = partial(attack.run, keep=parts)
        with seeded(self.seed):  # a model may sample by the global generator
            perturbed = perturb(
                attacked.model.to(self.device),
                known.to(self.device),
                self.target_nodes.to(self.device),
                self.budget,
                torch.Generator().manual_seed(self.seed),
            )
        found = replace(perturbed, x=perturbed.x.cpu(), edge_index=perturbed.edge_index.cpu())
        self._check_graph(found, type(attack).__name__)
        return found

    def _check_graph(self, perturbed: PerturbedGraph, name: str) -> None:
        """Refuse what no model can be run on, before it is stored; the auditor tells the rest."""
        x, edges = perturbed.x, perturbed.edge_index
        assert self.graph.x is not None
        n, width = self.graph.x.shape
        if x.ndim != 2 or x.size(1) != width or x.size(0) < n:
            raise AttackError(
                f"{name}: returns features of shape {tuple(x.shape)}; it must keep the {n} x "
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
        changed = (perturbed.x[:n] != self.graph.x).any(1).nonzero().squeeze(1)
        tensors = {
            "injected_x": perturbed.x[n:],
            "changed_nodes": changed,
            "changed_x": perturbed.x[changed],
            "edge_index": perturbed.edge_index,
        }
        reached = {"part_accuracy": dict(perturbed.part_accuracy), "part": perturbed.part}
        return Artifact(tensors, {"seconds": seconds, **reached})

    def _unpack(self, artifact: Artifact) -> PerturbedGraph:
        assert self.graph.x is not None
        tensors = artifact.tensors
        original = self.graph.x
        if tensors["changed_nodes"].numel():
            original = original.index_copy(0, tensors["changed_nodes"], tensors["changed_x"])
        x = torch.cat([original, tensors["injected_x"]])
        parts = {key: artifact.metadata[key] for key in ("part_accuracy", "part")}
        return PerturbedGraph(x, tensors["edge_index"], original.size(0), **parts)

    def _misled(
        self, attack: Attack, attacked: AttackedModel, graph: PerturbedGraph, after: Tensor
    ) -> Iterator[Flag]:
        """Signs that the attack found less harm than there is."""
        if attack.kind == "injection" and not any(self.budget.injected_degrees):
            return  # nothing was allowed
        model, targets = attacked.model, self.target_nodes.to(self.device)
        there = replace(
            graph, x=graph.x.to(self.device), edge_index=graph.edge_index.to(self.device)
        )
        injects = graph.x.size(0) > graph.num_original_nodes
        with frozen(model), seeded(self.seed):
            if injects and is_blind_to_edges(model, there, targets):
                return
            if attack.is_worst_case:  # which differentiates the adaptive form as well
                yield from gradient_flags(adaptive_form(model), there, targets)
            elif "feature_gradient" in attack.needs:
                yield from gradient_flags(model, there, targets)
        before, accuracy = self._logits(attacked), self._accuracy(after)
        if flag := no_effect(before.argmax(1), after.argmax(1)):
            yield flag
        elif type(attack) is not type(baseline := BASELINES[attack.kind]):
            by_chance = self._accuracy(self._logits(attacked, self._run(baseline, attacked)))
            if flag := weaker_than(accuracy, by_chance, "weaker_than_chance"):
                yield flag
        if flag := loss_without_errors(before, after, self._labels):
            yield flag

    def _logits(
        self, attacked: AttackedModel, graph: PerturbedGraph | None = None
    ) -> Float[Tensor, "t c"]:
        seen = self.graph if graph is None else graph
        assert seen.x is not None
        assert seen.edge_index is not None
        model = attacked.model.to(self.device)
        with torch.no_grad(), seeded(self.seed):
            logits = model(seen.x.to(self.device), seen.edge_index.to(self.device)).cpu()
        return logits[self.target_nodes]  # type: ignore[no-any-return]

    @property
    def _labels(self) -> Int[Tensor, " t"]:
        assert isinstance(self.graph.y, Tensor)
        return self.graph.y[self.target_nodes]

    def _accuracy(self, logits: Tensor) -> float:
        return float((logits.argmax(1) == self._labels).double().mean().item())

    def _audit(self, attack: Attack, perturbed: PerturbedGraph) -> list[Flag]:
        limits = asdict(self.budget) | dict.fromkeys(attack.unbounded)
        found = audit(
            self.graph, perturbed, kind=attack.kind, target_nodes=self.target_nodes, **limits
        )
        return [Flag("budget_overspent", violation.message) for violation in found]
