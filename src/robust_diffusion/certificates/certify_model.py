"""Certified robustness of any model on any graph, in one call."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, Task
from robust_diffusion.attacks.modification.base import edges_at
from robust_diffusion.certificates.base import ClassBounds, Smoothing, class_bounds
from robust_diffusion.certificates.bi_smoothing import BiSmoothing
from robust_diffusion.certificates.collective import Collective
from robust_diffusion.certificates.locality import check_locality
from robust_diffusion.certificates.report import Attacked, CertificateReport
from robust_diffusion.certificates.sampling import SmoothedModel, VoteCounter, graphs_per_pass
from robust_diffusion.certificates.sparse import SparseSmoothing
from robust_diffusion.checks import Count, Natural, Seed, check_choice, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import attacks_of, evaluate, probed
from robust_diffusion.evaluation.flags import graph_hash
from robust_diffusion.evaluation.report import RobustnessReport
from robust_diffusion.models.modules import device_of, own_context
from robust_diffusion.models.victim import DRAWS, Victim
from robust_diffusion.records.content import object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.progress import Progress
from robust_diffusion.system.tensor_hashes import tensor_hash

SCHEMES: Mapping[str, type[Smoothing]] = {cls.name: cls for cls in (SparseSmoothing, BiSmoothing)}


@dataclass(frozen=True)
class SmoothedAttacks:
    """Attacks on a smoothed classifier with each of its scheme's budgets; see `certify`."""

    data: Data | GraphDataModule  # the graph as it was passed
    attacks: Mapping[str, Attack]
    feature_limits: Sequence[float] | None
    draws: int  # of the smoothed form that is differentiated
    store: str | Path | None
    local: bool  # whether targets are attacked one at a time

    def __call__(
        self,
        count: VoteCounter,
        task: Task,
        bounds: ClassBounds,
        votes: Int[Tensor, "t c"],
    ) -> tuple[list[Attacked], list[RobustnessReport]]:
        """Find the worst case within each budget or a smaller one, and judge it by fresh draws.

        The attacker knows the true classes, and differentiates the adaptive form of the classifier
        through the noise of separate draws. The clean graph is within every budget.
        """
        device = device_of(count.model)
        smoothed = SmoothedModel(
            count.model, count.scheme, draws=self.draws, seed=count.seed, per_pass=count.per_pass
        ).eval()
        positions = torch.split(torch.arange(len(votes)), 1 if self.local else len(votes))
        parts = [replace(task, targets=task.targets[at]) for at in positions]
        accuracies = (
            part.share(votes[at].double()) for at, part in zip(positions, parts, strict=True)
        )
        least = [(accuracy, "") for accuracy in accuracies]
        predicted, attacked, reports = torch.from_numpy(bounds.predicted), [], []
        totals = list(filter(None, count.scheme.budgets))
        # A single bar for all targets, since the attack on each is short.
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
                        targets=part.targets,
                        attacker_knows="labels",
                        threat="adaptive",
                        seed=count.seed,
                        store=self.store,
                        progress=count.progress,
                    )
                    counter, of_attacks = replace(count, targets=part.targets), []
                    for name in self.attacks:
                        graph = report[name].graph
                        x, edges = graph.x.to(device), graph.edge_index.to(device)
                        after = counter("attacked", count.scheme.samples, x, edges)
                        turned = sure[at] & (after.argmax(1) != predicted[at])
                        of_attacks.append(int(turned.sum()))
                        here = part.share(after.double()), name
                        least[i] = min(least[i], here, key=itemgetter(0))
                    broken += max(of_attacks)
                    tell(1)
                    reports.append(report)
                names = " ".join(sorted({name for _, name in least if name}))
                mean = fmean(accuracy for accuracy, _ in least)
                attacked.append(Attacked(total, mean, names, broken))
        return attacked, reports

    def _budget(self, total: int, scheme: Smoothing, task: Task) -> Budget:
        """Return the budget of an attack that stays within that of the certificate."""
        targets, limits = task.targets, self.feature_limits
        if isinstance(scheme, BiSmoothing):
            return Budget(total, min(scheme.edges[0], targets.numel()), limits)
        edges = edges_at(targets, task.edge_index, len(task.x)).size(1)
        if total > edges and not self.local:
            raise ConfigError(
                f"certificate.budgets={total}: the target nodes have {edges} edges in all, and "
                "attacks flip no more than that"
            )
        # The middle of the ratios that give this number of flips.
        ratio = min(1.0, (total + 0.5) / edges)
        return Budget(0, 0, limits, node_ratio=0, edge_ratio=ratio)


@validated("")
@own_context()
def certify(
    model: nn.Module,
    data: Data | GraphDataModule,
    *,
    certificate: str | Smoothing = "sparse",
    targets: Any = "test",
    attacks: str | Attack | Sequence[str | Attack] | Mapping[str, str | Attack] = (),
    feature_limits: Sequence[float] | None = None,
    attack_draws: Count = DRAWS,
    local: Natural = 0,
    seed: Seed = 0,
    device: str | torch.device | None = None,
    store: str | Path | None = None,
    progress: bool = True,
) -> CertificateReport:
    """Certify the smoothed form of a trained model, and attack that form.

    Each target is certified separately. If it is, no perturbation within the budget changes its
    class under the smoothed form, with probability 1 - alpha over the draws: for `sparse`, no flips
    of edges anywhere in the graph; for `bi_smoothing`, no injected nodes, whatever their features.
    The model is not modified.

    Examples:
        >>> import torch
        >>> from robust_diffusion import certify, fit
        >>> from robust_diffusion.certificates import SparseSmoothing
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(16, 8, out_channels=7)
        >>> _ = fit(model, data, max_epochs=2, accelerator="cpu")
        >>> report = certify(model, data, certificate=SparseSmoothing(samples=20))
        >>> list(report.to_frame().columns)
        ['additions', 'deletions', 'certified', 'certified_accuracy']

    Args:
        model: Any trained `nn.Module` that maps (x, edge_index[, edge_weight]) to logits.
        data: A PyG `Data`, or the datamodule that the model was trained with; see `evaluate`.
        certificate: sparse or bi_smoothing for their default options, or a scheme.
        targets: Nodes to certify: test, val, train or all; a boolean mask; or node numbers.
        attacks: Attacks on the smoothed classifier with each budget of the scheme; none by default.
            They must be of the scheme's kind. They know the true classes and the noise of the draws
            that they differentiate.
        feature_limits: Smallest and largest feature of injected nodes; `None` for the range of
            the clean graph. The certificate has no such limits.
        attack_draws: Draws of the smoothed classifier that attacks differentiate, at least 1.
        local: Number of targets to certify and to attack one at a time, each with the whole budget
            (at most as many flips as it has edges), drawn from targets with edges; 0 to certify all
            targets and attack them together.
        seed: Seed of all random choices, in 0..2^32 - 1.
        device: Device to run on; `None` for the model's device.
        store: Folder that caches votes and attacked graphs, so that an interrupted call resumes
            where it stopped, and a call with more draws reuses earlier ones; `None` for no cache.
        progress: Show bars on a terminal, or log a line a minute.

    Raises:
        ConfigError: An argument is invalid, the scheme cannot certify the model, or its logits are
            NaN on a noisy graph.
        DataError: `data` is not a valid graph, or `targets` are not nodes of it.
        AttackError: An attack cannot run on the smoothed classifier.
    """
    victim, task, source = probed(model, data, targets, device, seed=seed)
    if isinstance(certificate, str):
        certificate = SCHEMES[check_choice("certificate", certificate, SCHEMES)]()
    if not isinstance(certificate, Smoothing):
        raise ConfigError(
            f"certificate={certificate}: expected one of {', '.join(SCHEMES)} or a scheme, got "
            f"{type(certificate).__name__}; use SparseSmoothing()"
        )
    by_name = attacks_of_kind(attacks, certificate)
    if local:
        task = replace(task, targets=local_sample(task.graph, task.targets, local, seed))
    cache = None if store is None else ArtifactStore(store, option="store")
    attack = SmoothedAttacks(data, by_name, feature_limits, attack_draws, store, local > 0)
    with victim:
        parts = victim, task, certificate, attack, cache
        return _certified(*parts, dataset=source.dataset, progress=progress)


def _certified(
    victim: Victim,
    task: Task,
    scheme: Smoothing,
    attack: SmoothedAttacks,
    cache: ArtifactStore | None,
    *,
    dataset: str,
    progress: bool,
) -> CertificateReport:
    """Count the votes of a prepared model, attack its smoothed form, and report both."""
    start, model = time.perf_counter(), victim.as_module()
    x, edge_index, weights = victim.x, victim.edge_index, victim.weights
    clean = victim.clean_predictions(task.seed)[task.targets]
    locality = check_locality(model, x, edge_index, scheme)
    count = VoteCounter(
        model,
        scheme,
        task.targets,
        task.seed,
        cache,
        {"model": object_key(victim.module), "weights": weights, "logits": tensor_hash(clean)},
        per_pass=graphs_per_pass(x, edge_index, scheme, locality),
        progress=progress,
    )
    selection = count("selection", scheme.selection_samples, x, edge_index)
    votes = count("votes", scheme.samples, x, edge_index)
    bounds = class_bounds(selection, votes, scheme.alpha)
    collective = None
    if isinstance(scheme, BiSmoothing) and locality.separate and not attack.local:
        collective = Collective.of(
            *(scheme, edge_index, len(x), task.targets, task.labels.numpy()),
            *(selection, votes),
        )
    counted = time.perf_counter()
    attacked, reports = attack(count, task, bounds, votes) if attack.attacks else ([], [])
    return CertificateReport(
        model=type(victim.module).__name__,
        scheme=scheme,
        bounds=bounds,
        votes=votes,
        labels=task.labels.numpy(),
        nodes=task.targets,
        num_edges=edge_index.size(1) // 2,
        sees_no_edge=float(1 - scheme.survival(_degrees(task.graph)[task.targets].numpy()).mean()),
        plain_accuracy=task.share(clean),
        clean_accuracy=task.share(votes.double()),
        local=attack.local,
        locality=locality,
        attacked=attacked,
        seed=task.seed,
        dataset=dataset,
        clean_graph=graph_hash(task.graph, task.targets),
        weights=weights,
        seconds={"votes": counted - start, "attacks": time.perf_counter() - counted},
        attacks=tuple(reports),
        collective=collective,
    )


def _degrees(graph: Data) -> Int[Tensor, " n"]:
    assert graph.edge_index is not None
    return torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)


def local_sample(
    graph: Data, targets: Int[Tensor, " t"], number: int, seed: int
) -> Int[Tensor, " s"]:
    """Draw some of the targets that have edges, in ascending order."""
    possible = targets[_degrees(graph)[targets] > 0]
    if number > len(possible):
        raise ConfigError(f"local={number}: {len(possible)} target nodes have edges; give fewer")
    order = torch.randperm(len(possible), generator=torch.Generator().manual_seed(seed))
    return possible[order[:number]].sort().values


def attacks_of_kind(attacks: Any, scheme: Smoothing) -> dict[str, Attack]:
    """Return attacks by name; raise a `ConfigError` if the scheme does not cover their kind."""
    by_name = attacks_of(attacks) if isinstance(attacks, str | Attack) or attacks else {}
    for name, attack in by_name.items():
        if attack.kind != scheme.kind:
            raise ConfigError(
                f"attacks: {name} is of kind {attack.kind}; certificate={scheme.name} holds "
                f"against {scheme.kind}"
            )
    return by_name
