"""Certified robustness of any model on any graph, in one call."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack
from robust_diffusion.certificates.attacked import SmoothedAttacks
from robust_diffusion.certificates.base import Smoothing
from robust_diffusion.certificates.bi_smoothing import BiSmoothing
from robust_diffusion.certificates.bounds import class_bounds
from robust_diffusion.certificates.locality import check_locality
from robust_diffusion.certificates.report import CertificateReport
from robust_diffusion.certificates.sampling import VoteCounter, graphs_per_pass
from robust_diffusion.certificates.sparse import SparseSmoothing
from robust_diffusion.checks import Count, Natural, Seed, check_choice, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import Subject, attacks_of, subject_of
from robust_diffusion.models.adaptive import DRAWS
from robust_diffusion.models.checked import own_context
from robust_diffusion.records.content import object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

SCHEMES: Mapping[str, type[Smoothing]] = {cls.name: cls for cls in (SparseSmoothing, BiSmoothing)}


@validated("")
@own_context()
def certify(
    model: nn.Module,
    data: Data | GraphDataModule,
    *,
    certificate: str | Smoothing = "sparse",
    nodes: Any = "test",
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

    Each target is certified by itself: no perturbation of the whole graph within the budget changes
    its class, with probability 1 - alpha over the draws. The model is left as it was.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GCN, SparseSmoothing, certify, fit
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(16, 8, 7)
        >>> _ = fit(model, data, max_epochs=2, accelerator="cpu")
        >>> report = certify(model, data, certificate=SparseSmoothing(samples=20))
        >>> list(report.to_frame().columns)
        ['additions', 'deletions', 'certified', 'certified_accuracy']

    Args:
        model: Any `nn.Module` of (x, edge_index[, edge_weight]) that returns logits, trained.
        data: A PyG `Data`, or the datamodule that the model was trained with; see `evaluate`.
        certificate: sparse or bi_smoothing with their default options, or a scheme.
        nodes: Nodes to certify: test, val, train or all; a boolean mask; or node numbers.
        attacks: Attacks on the smoothed classifier with each of the scheme's budgets, of its kind;
            none by default. They know the true classes and the noise of their own draws.
        feature_limits: Smallest and largest feature of injected nodes; `None` for the range of
            the clean graph. The certificate has no limit.
        attack_draws: Draws of the smoothed classifier that attacks differentiate, at least 1.
        local: Attack targets one at a time, each with the whole budget (of flips, at most as many
            as it has edges): this number, drawn from those with edges, and no other is certified; 0
            for all targets and attacks on all of them together.
        seed: Of all random choices, in 0..2^32 - 1.
        device: Where to run; `None` for where the model is.
        store: Folder that keeps votes and attacked graphs, so that a call that was cut off goes on
            where it stopped, and one of more draws has those that were made; `None` for none.
        progress: Show bars on a terminal, or log a line a minute.

    Raises:
        ConfigError: An argument that is not as above, or a model that the scheme cannot certify.
        DataError: No graph can be like `data`, or `nodes` are none of its nodes.
        AttackError: The smoothed classifier cannot be attacked so.
    """
    subject = subject_of(model, data, nodes, device, seed=seed)
    if isinstance(certificate, str):
        certificate = SCHEMES[check_choice("certificate", certificate, SCHEMES)]()
    chosen = attacks_of_kind(attacks, certificate)
    if local:
        sample = local_sample(subject.graph, subject.targets, local, seed)
        subject = replace(subject, targets=sample)
    cache = None if store is None else ArtifactStore(store, option="store")
    attack = SmoothedAttacks(data, chosen, feature_limits, attack_draws, store, local > 0)
    with subject.tried.ready():
        return _certified(subject, certificate, attack, cache, progress=progress)


def _certified(
    subject: Subject,
    scheme: Smoothing,
    attack: SmoothedAttacks,
    cache: ArtifactStore | None,
    *,
    progress: bool,
) -> CertificateReport:
    """Count the votes of a model that is ready, attack its smoothed form, and report both."""
    start, model = time.perf_counter(), subject.model
    x, edge_index = subject.placed(subject.graph)
    weights, clean = state_hash(model.state_dict()), subject.logits(subject.graph)
    locality = check_locality(model, x, edge_index, scheme)
    count = VoteCounter(
        model,
        scheme,
        subject.targets,
        subject.seed,
        cache,
        {"model": object_key(model), "weights": weights, "logits": tensor_hash(clean)},
        per_pass=graphs_per_pass(x, edge_index, scheme, locality),
        progress=progress,
    )
    selection = count("selection", scheme.selection_samples, x, edge_index)
    votes = count("votes", scheme.samples, x, edge_index)
    bounds = class_bounds(selection, votes, scheme.alpha)
    counted = time.perf_counter()
    attacked, reports = attack(count, subject, bounds, votes) if attack.attacks else ([], [])
    return CertificateReport(
        model=type(model).__name__,
        scheme=scheme,
        bounds=bounds,
        votes=votes,
        labels=subject.labels.numpy(),
        nodes=subject.targets,
        num_edges=edge_index.size(1) // 2,
        sees_no_edge=float(
            1 - scheme.survival(_degrees(subject.graph)[subject.targets].numpy()).mean()
        ),
        plain_accuracy=subject.accuracy(clean),
        clean_accuracy=subject.accuracy(votes.double()),
        local=attack.local,
        locality=locality,
        attacked=attacked,
        seed=subject.seed,
        dataset=subject.dataset,
        clean_graph=subject.fingerprint,
        weights=weights,
        seconds={"votes": counted - start, "attacks": time.perf_counter() - counted},
        attacks=tuple(reports),
    )


def _degrees(graph: Data) -> Int[Tensor, " n"]:
    assert graph.edge_index is not None
    return torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)


def local_sample(
    graph: Data, targets: Int[Tensor, " t"], number: int, seed: int
) -> Int[Tensor, " s"]:
    """Draw some of the targets that have edges, ascending."""
    possible = targets[_degrees(graph)[targets] > 0]
    if number > len(possible):
        raise ConfigError(f"local={number}: {len(possible)} target nodes have edges; give fewer")
    order = torch.randperm(len(possible), generator=torch.Generator().manual_seed(seed))
    return possible[order[:number]].sort().values


def attacks_of_kind(attacks: Any, scheme: Smoothing) -> dict[str, Attack]:
    """Attacks by name, if the scheme certifies against all of them."""
    chosen = attacks_of(attacks) if isinstance(attacks, str | Attack) or attacks else {}
    for name, attack in chosen.items():
        if attack.kind != scheme.kind:
            raise ConfigError(
                f"attacks: {name} is of kind {attack.kind}; certificate={scheme.name} holds "
                f"against {scheme.kind}"
            )
    return chosen
