"""Measurements that the board itself makes of a model: chance, others' worst graphs, flags."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import torch
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, PerturbedGraph, RandomInjection, seeded, spent_budget
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import frozen
from robust_diffusion.attacks.named import attack_names, build_attack
from robust_diffusion.evaluation.flags import (
    Flag,
    budget_unspent,
    gradient_flags,
    is_blind_to_edges,
    loss_without_errors,
    no_effect,
)
from robust_diffusion.evaluation.subject import Subject
from robust_diffusion.evaluation.victim_flags import with_victim_flags
from robust_diffusion.evaluation.zoo import Zoo
from robust_diffusion.models.adaptive import adaptive_form


def breaches(subject: Subject, graph: PerturbedGraph, budget: Budget) -> list[str]:
    """Limits that an injection breaks, as the auditor tells them."""
    found = audit(
        subject.graph, graph, kind="injection", target_nodes=subject.targets, **asdict(budget)
    )
    return [violation.message for violation in found if violation.level == "error"]


def chance_accuracy(subject: Subject, budget: Budget, seed: int) -> float:
    """Accuracy under random nodes that spend the budget, in 0..1."""
    known = Data(x=subject.graph.x, edge_index=subject.graph.edge_index).to(subject.device)
    generator = torch.Generator().manual_seed(seed)
    targets = subject.targets.to(subject.device)
    graph = RandomInjection()(subject.model, known, targets, budget, generator)
    return subject.accuracy(subject.logits(graph, seed))


def accuracy_on_worst_graphs(
    subject: Subject, zoo: Zoo, dataset: str, budget: Budget, seed: int
) -> Iterator[tuple[str, float]]:
    """Accuracy on each graph within the budget that does most to a model of the zoo, by its key."""
    for entry in zoo.entries:
        if entry.dataset == dataset:
            graph = zoo.worst_graph(entry, subject.graph)
            if not breaches(subject, graph, budget):
                yield f"worst of {entry.name}", subject.accuracy(subject.logits(graph, seed))


def flags_of(
    subject: Subject, graphs: Mapping[str, PerturbedGraph], budget: Budget | None, seed: int
) -> dict[str, list[str]]:
    """Codes of the flags of attacks on the model itself, and of the `victim`.

    Args:
        subject: The model and the clean graph.
        graphs: Attacked graphs by attack.
        budget: Flag a single attack that leaves some of it unspent; `None` for not to.
        seed: Of a model that samples.
    """
    logits = {name: subject.logits(graph, seed) for name, graph in graphs.items()}
    found = with_victim_flags(
        {
            name: list(_misled(subject, graph, None if _tries_less(name) else budget, seed))
            for name, graph in graphs.items()
        },
        subject.model,
        clean=subject.test_graph(subject.graph),
        graphs={name: {name: subject.test_graph(graph)} for name, graph in graphs.items()},
        not_finite={name: int((~of.isfinite()).any(1).sum()) for name, of in logits.items()},
        seed=seed,
    )
    return {name: [flag.code for flag in flags] for name, flags in found.items()}


def _tries_less(name: str) -> bool:
    """True of an attack that tries the whole budget as well as less, so that less is no flaw."""
    return name in attack_names() and build_attack(name).is_worst_case


def _misled(
    subject: Subject, graph: PerturbedGraph, budget: Budget | None, seed: int
) -> Iterator[Flag]:
    """Signs that an attack found less harm than there is."""
    model, targets = subject.model, subject.targets.to(subject.device)
    n = graph.num_original_nodes
    there = PerturbedGraph(graph.x.to(subject.device), graph.edge_index.to(subject.device), n)
    unspent = budget and budget_unspent(budget, spent_budget(subject.graph, graph))
    if unspent:
        yield unspent
    with frozen(model), seeded(seed):
        if graph.x.size(0) > n and is_blind_to_edges(model, there, targets):
            return
        yield from gradient_flags(adaptive_form(model), there, targets)
    before, after = (subject.logits(of, seed) for of in (subject.graph, graph))
    if flag := no_effect(before.argmax(1), after.argmax(1)):
        yield flag
    if flag := loss_without_errors(before, after, subject.graph.y[subject.targets]):
        yield flag
