"""Attacks on a smoothed classifier within the budgets of its certificate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.certificates.base import Smoothing
from robust_diffusion.certificates.bi_smoothing import BiSmoothing
from robust_diffusion.certificates.bounds import ClassBounds
from robust_diffusion.certificates.report import Attacked
from robust_diffusion.certificates.sampling import VoteCounter
from robust_diffusion.certificates.smoothed import SmoothedModel
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import Subject, evaluate
from robust_diffusion.evaluation.report import RobustnessReport
from robust_diffusion.system.progress import Progress


@dataclass(frozen=True)
class SmoothedAttacks:
    """Attacks on a smoothed classifier with each of its scheme's budgets; see `certify`."""

    data: Data | GraphDataModule  # the graph as it was passed
    attacks: Mapping[str, Attack]
    feature_limits: Sequence[float] | None
    draws: int  # of the smoothed form that is differentiated
    store: str | Path | None
    local: bool  # one target at a time

    def __call__(
        self,
        count: VoteCounter,
        subject: Subject,
        bounds: ClassBounds,
        votes: Int[Tensor, "t c"],
    ) -> tuple[list[Attacked], list[RobustnessReport]]:
        """Find the worst that each budget or a smaller one allows, by fresh draws.

        The attacker knows the true classes and differentiates the adaptive form of the classifier,
        through the noise of its own draws. The clean graph is within every budget.
        """
        options = {"seed": count.seed, "per_pass": count.per_pass}
        smoothed = SmoothedModel(count.model, count.scheme, draws=self.draws, **options).eval()
        positions = torch.split(torch.arange(len(votes)), 1 if self.local else len(votes))
        parts = [replace(subject, targets=subject.targets[at]) for at in positions]
        accuracies = (
            part.accuracy(votes[at].double()) for at, part in zip(positions, parts, strict=True)
        )
        least = [(accuracy, "") for accuracy in accuracies]
        predicted, attacked, reports = torch.from_numpy(bounds.predicted), [], []
        totals = list(filter(None, count.scheme.budgets))
        # One bar for all targets, of whose attacks each takes a moment.
        shown = count.progress and self.local
        count = replace(count, progress=count.progress and not self.local)
        with Progress("targets attacked", len(parts) * len(totals), shown=shown) as tell:
            for total in totals:
                budgets = [self._budget(total, count.scheme, part) for part in parts]
                sure, broken = torch.from_numpy(count.scheme.certified_at(bounds, total)), 0
                for i, (at, part) in enumerate(zip(positions, parts, strict=True)):
                    report = evaluate(
                        smoothed,
                        self.data,
                        budget=budgets[i],
                        attacks=self.attacks,
                        nodes=part.targets,
                        labels="true",
                        threat="adaptive",
                        seed=count.seed,
                        store=self.store,
                        progress=count.progress,
                    )
                    counter, of_attacks = replace(count, targets=part.targets), []
                    for name in self.attacks:
                        graph = subject.placed(report[name].graph)
                        after = counter("attacked", count.scheme.samples, *graph)
                        turned = sure[at] & (after.argmax(1) != predicted[at])
                        of_attacks.append(int(turned.sum()))
                        here = part.accuracy(after.double()), name
                        least[i] = min(least[i], here, key=itemgetter(0))
                    broken += max(of_attacks)
                    tell(1)
                    reports.append(report)
                names = " ".join(sorted({name for _, name in least if name}))
                mean = fmean(accuracy for accuracy, _ in least)
                attacked.append(Attacked(total, mean, names, broken))
        return attacked, reports

    def _budget(self, total: int, scheme: Smoothing, subject: Subject) -> Budget:
        """Return the budget of an attack that stays within the certificate's."""
        targets, limits = subject.targets, self.feature_limits
        if isinstance(scheme, BiSmoothing):
            return Budget(total, min(scheme.edges[0], targets.numel()), limits)
        x, edge_index = subject.placed(subject.graph)
        edges = edges_at(targets.to(x.device), edge_index, x.size(0)).size(1)
        if total > edges and not self.local:
            raise ConfigError(
                f"certificate.budgets={total}: the target nodes have {edges} edges in all, and "
                "attacks flip no more than that"
            )
        # The middle of the ratios that are read as this number of flips.
        ratio = min(1.0, (total + 0.5) / edges)
        return Budget(0, 0, limits, node_ratio=0, edge_ratio=ratio)
