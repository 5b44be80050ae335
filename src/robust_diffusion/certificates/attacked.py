"""Attacks on a smoothed classifier within the budgets of its certificate."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def attack_smoothed(
    count: VoteCounter,
    subject: Subject,
    data: Data | GraphDataModule,
    attacks: Mapping[str, Attack],
    folder: str | Path,
    *,
    feature_limits: Sequence[float] | None,
    draws: int,
) -> dict[int, RobustnessReport]:
    """Reports of attacks on the smoothed form of a classifier, by each of the scheme's budgets.

    The attacker knows the true classes and differentiates the adaptive form of the classifier,
    through the noise of its own draws.

    Args:
        count: Has the classifier, the scheme, and the seed.
        subject: The same classifier, and its graph.
        data: The graph as it was handed over.
        attacks: By name.
        folder: Keeps the attacked graphs.
        feature_limits: Of injected nodes; `None` for the range of the clean graph.
        draws: Of the smoothed form.
    """
    smoothed = SmoothedModel(
        count.model, count.scheme, draws=draws, seed=count.seed, per_pass=count.per_pass
    )
    return {
        total: evaluate(
            smoothed.eval(),
            data,
            budget=_budget(total, count, subject, feature_limits),
            attacks=attacks,
            nodes=subject.targets,
            labels="true",
            threat="adaptive",
            seed=count.seed,
            store=folder,
            progress=count.progress,
        )
        for total in count.scheme.budgets
        if total
    }


def worst_of(
    reports: Mapping[int, RobustnessReport],
    count: VoteCounter,
    subject: Subject,
    bounds: ClassBounds,
    votes: Int[Tensor, "t c"],
) -> list[Attacked]:
    """The worst that each budget or a smaller one allows, by votes of fresh draws.

    The clean graph is within every budget: `attack` is "" where no attack did more.

    Args:
        reports: Of the attacks by budget, ascending.
        count: Counts the votes on an attacked graph.
        subject: The classifier and its graph.
        bounds: Of the clean graph, from which a node is certified.
        votes: On the clean graph.
    """
    assert isinstance(subject.graph.y, Tensor)
    labels = subject.graph.y[subject.targets].numpy()
    found: list[Attacked] = []
    least = float((votes.argmax(1).numpy() == labels).mean()), ""
    for total, report in reports.items():
        sure = count.scheme.certified_at(bounds, total)
        classes = {
            of.name: count("attacked", count.scheme.samples, *on_device(of.graph, subject))
            .argmax(1)
            .numpy()
            for of in report.attacks
        }
        broken = max(int((sure & (of != bounds.predicted)).sum()) for of in classes.values())
        if broken:
            log.warning(
                "certificate=%s: attacks with %d %s turn over %d certified nodes",
                count.scheme.name,
                total,
                count.scheme.unit,
                broken,
            )
        here = [(float((of == labels).mean()), name) for name, of in classes.items()]
        least = min([least, *here], key=lambda of: of[0])
        found.append(Attacked(total, *least, broken))
    return found


def on_device(
    graph: Data | PerturbedGraph, subject: Subject
) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
    """Features and edges of a graph, where the classifier is."""
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.to(subject.device), graph.edge_index.to(subject.device)


def _budget(
    total: int, count: VoteCounter, subject: Subject, feature_limits: Sequence[float] | None
) -> Budget:
    """The budget of an attack that stays within the certificate's."""
    targets = subject.targets
    if isinstance(count.scheme, BiSmoothing):
        return Budget(total, min(count.scheme.edges[0], targets.numel()), feature_limits)
    x, edge_index = on_device(subject.graph, subject)
    edges = edges_at(targets.to(x.device), edge_index, x.size(0)).size(1)
    if total > edges:
        raise ConfigError(
            f"certificate.budgets={total}: the target nodes have {edges} edges in all, and attacks "
            "flip no more than that"
        )
    # The middle of the ratios that are read as so many flips.
    ratio = min(1.0, (total + 0.5) / edges)
    return Budget(0, 0, feature_limits, node_ratio=0, edge_ratio=ratio)
