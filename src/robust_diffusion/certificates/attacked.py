"""Attacks on a smoothed classifier within the budgets of its certificate."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget
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
from robust_diffusion.system.progress import Progress


def attack_smoothed(
    count: VoteCounter,
    subject: Subject,
    data: Data | GraphDataModule,
    attacks: Mapping[str, Attack],
    store: str | Path | None,
    bounds: ClassBounds,
    votes: Int[Tensor, "t c"],
    feature_limits: Sequence[float] | None,
    draws: int,
    *,
    local: bool,
) -> tuple[list[Attacked], list[RobustnessReport]]:
    """The worst that each of the scheme's budgets or a smaller one allows, by fresh draws.

    The attacker knows the true classes and differentiates the adaptive form of the classifier,
    through the noise of its own draws. The clean graph is within every budget.

    Args:
        count: Has the classifier, the scheme, and the seed.
        subject: The same classifier, its graph and targets.
        data: The graph as it was passed.
        attacks: By name, at least one.
        store: Keeps the attacked graphs; `None` to keep none.
        bounds: Of the clean graph, as are the votes.
        votes: By target and class.
        feature_limits: See `certify`, also for `draws` (its `attack_draws`) and `local`.
        draws: Of the smoothed form.
        local: One target at a time.
    """
    smoothed = SmoothedModel(
        count.model, count.scheme, draws=draws, seed=count.seed, per_pass=count.per_pass
    ).eval()
    positions = torch.split(torch.arange(len(votes)), 1 if local else len(votes))
    parts = [replace(subject, targets=subject.targets[at]) for at in positions]
    least = [
        (part.accuracy(votes[at].double()), "") for at, part in zip(positions, parts, strict=True)
    ]
    predicted, found, reports = torch.from_numpy(bounds.predicted), [], []
    totals = list(filter(None, count.scheme.budgets))
    # One bar for all targets, of whose attacks each takes a moment.
    shown = count.progress and local
    count = replace(count, progress=count.progress and not local)
    with Progress("targets attacked", len(parts) * len(totals), shown=shown) as tell:
        for total in totals:
            budgets = [_budget(total, count, part, feature_limits, local=local) for part in parts]
            sure, broken = torch.from_numpy(count.scheme.certified_at(bounds, total)), 0
            for i, (at, part) in enumerate(zip(positions, parts, strict=True)):
                report = evaluate(
                    smoothed,
                    data,
                    budget=budgets[i],
                    attacks=attacks,
                    nodes=part.targets,
                    labels="true",
                    threat="adaptive",
                    seed=count.seed,
                    store=store,
                    progress=count.progress,
                )
                counter, of_attacks = replace(count, targets=part.targets), []
                for name in attacks:
                    graph = report[name].graph
                    after = counter("attacked", count.scheme.samples, *subject.placed(graph))
                    of_attacks.append(int((sure[at] & (after.argmax(1) != predicted[at])).sum()))
                    here = part.accuracy(after.double()), name
                    least[i] = min(least[i], here, key=itemgetter(0))
                broken += max(of_attacks)
                tell(1)
                reports.append(report)
            names = " ".join(sorted({name for _, name in least if name}))
            found.append(Attacked(total, fmean(accuracy for accuracy, _ in least), names, broken))
    return found, reports


def _budget(
    total: int,
    count: VoteCounter,
    subject: Subject,
    feature_limits: Sequence[float] | None,
    *,
    local: bool,
) -> Budget:
    """The budget of an attack that stays within the certificate's."""
    targets = subject.targets
    if isinstance(count.scheme, BiSmoothing):
        return Budget(total, min(count.scheme.edges[0], targets.numel()), feature_limits)
    x, edge_index = subject.placed(subject.graph)
    edges = edges_at(targets.to(x.device), edge_index, x.size(0)).size(1)
    if total > edges and not local:
        raise ConfigError(
            f"certificate.budgets={total}: the target nodes have {edges} edges in all, and attacks "
            "flip no more than that"
        )
    # The middle of the ratios that are read as this number of flips.
    ratio = min(1.0, (total + 0.5) / edges)
    return Budget(0, 0, feature_limits, node_ratio=0, edge_ratio=ratio)
