"""Attacks on a smoothed classifier within the budgets of its certificate."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.certificates.bi_smoothing import BiSmoothing
from robust_diffusion.certificates.bounds import ClassBounds
from robust_diffusion.certificates.report import Attacked
from robust_diffusion.certificates.sampling import VoteCounter
from robust_diffusion.certificates.smoothed import SmoothedModel
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import evaluate
from robust_diffusion.evaluation.report import RobustnessReport
from robust_diffusion.evaluation.subject import Subject

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SmoothedAttacks:
    """Attacks on the smoothed form of a classifier, counted by votes of fresh draws.

    The attacker knows the true classes and differentiates the adaptive form of the classifier,
    through the noise of its own draws.

    Args:
        count: Has the classifier, the scheme, and the seed.
        subject: The same classifier, its graph and targets.
        data: The graph as it was handed over.
        attacks: By name.
        folder: Keeps the attacked graphs.
        bounds: Of the clean graph, from which a node is certified.
        votes: On the clean graph.
        feature_limits: Of injected nodes; `None` for the range of the clean graph.
        draws: Of the smoothed form.
    """

    count: VoteCounter
    subject: Subject
    data: Data | GraphDataModule
    attacks: Mapping[str, Attack]
    folder: str | Path
    bounds: ClassBounds
    votes: Int[Tensor, "t c"]
    feature_limits: Sequence[float] | None
    draws: int

    def jointly(self) -> tuple[list[Attacked], list[RobustnessReport]]:
        """The worst that each budget or a smaller one allows, spent on all targets together.

        The clean graph is within every budget: `attack` is "" where no attack did more.
        """
        count, subject, scheme = self.count, self.subject, self.count.scheme
        smoothed = SmoothedModel(
            count.model, scheme, draws=self.draws, seed=count.seed, per_pass=count.per_pass
        )
        found, reports = [], []
        least = subject.accuracy(self.votes.double()), ""
        for total in filter(None, scheme.budgets):
            report = evaluate(
                smoothed.eval(),
                self.data,
                budget=self._budget(total),
                attacks=self.attacks,
                nodes=subject.targets,
                labels="true",
                threat="adaptive",
                seed=count.seed,
                store=self.folder,
                progress=count.progress,
            )
            sure, broken = torch.from_numpy(scheme.certified_at(self.bounds, total)), 0
            for of in (report[name] for name in self.attacks):
                votes = count("attacked", scheme.samples, *on_device(of.graph, subject))
                turned = votes.argmax(1) != torch.from_numpy(self.bounds.predicted)
                broken = max(broken, int((sure & turned).sum()))
                here = subject.accuracy(votes.double()), of.name
                least = min(least, here, key=lambda of: of[0])
            if broken:
                log.warning(
                    "certificate=%s: attacks with %d %s turn over %d certified nodes",
                    scheme.name,
                    total,
                    scheme.unit,
                    broken,
                )
            found.append(Attacked(total, *least, broken))
            reports.append(report)
        return found, reports

    def one_by_one(self) -> tuple[list[Attacked], list[RobustnessReport]]:
        """The same with each budget spent on one target at a time: means, and `broken` in all."""
        found, reports = zip(*(self._at(i).jointly() for i in range(len(self.votes))), strict=True)
        means = [
            Attacked(
                same[0].total,
                fmean(of.accuracy for of in same),
                " ".join(sorted({of.attack for of in same if of.attack})),
                sum(of.broken for of in same),
            )
            for same in zip(*found, strict=True)
        ]
        return means, [report for of in reports for report in of]

    def _at(self, i: int) -> "SmoothedAttacks":
        """These attacks on one target alone."""
        one = self.subject.targets[i : i + 1]
        of = self.bounds
        return replace(
            self,
            subject=replace(self.subject, targets=one),
            count=replace(self.count, targets=one, progress=False),
            bounds=ClassBounds(*(b[i : i + 1] for b in (of.predicted, of.lower, of.upper))),
            votes=self.votes[i : i + 1],
        )

    def _budget(self, total: int) -> Budget:
        """The budget of an attack within the certificate's; all edges of one target at most."""
        scheme, targets = self.count.scheme, self.subject.targets
        if isinstance(scheme, BiSmoothing):
            return Budget(total, min(scheme.edges[0], targets.numel()), self.feature_limits)
        x, edge_index = on_device(self.subject.graph, self.subject)
        edges = edges_at(targets.to(x.device), edge_index, x.size(0)).size(1)
        if total > edges and targets.numel() > 1:
            raise ConfigError(
                f"certificate.budgets={total}: the target nodes have {edges} edges in all, and "
                "attacks flip no more than that"
            )
        # The middle of the ratios that are read as so many flips.
        ratio = min(1.0, (total + 0.5) / edges)
        return Budget(0, 0, self.feature_limits, node_ratio=0, edge_ratio=ratio)


def on_device(
    graph: Data | PerturbedGraph, subject: Subject
) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
    """Features and edges of a graph, where the classifier is."""
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.to(subject.device), graph.edge_index.to(subject.device)
