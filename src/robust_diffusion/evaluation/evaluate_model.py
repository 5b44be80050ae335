"""Robustness of any model on any graph, in one call."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph
from robust_diffusion.checks import Count, Seed, validated
from robust_diffusion.data.validate import Served
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.flags import Flag
from robust_diffusion.evaluation.perturbed import (
    BASELINES,
    Attacker,
    AttackRun,
    Evaluation,
    evaluate_on,
    runs_on,
)
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.evaluation.subject import (
    Subject,
    attacks_of,
    budget_of,
    subject_of,
    surrogates_of,
)
from robust_diffusion.evaluation.threat import AttackedModel, Labels
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.checked import own_context, sees_edges
from robust_diffusion.records.content import object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

Threat = Literal["white_box", "adaptive", "black_box"]

PROBABILITIES = "the model returns probabilities, attacked through their logarithm; return logits"


@validated("")
@own_context()
def evaluate(
    model: nn.Module,
    data: Data | Served,
    *,
    budget: Budget,
    attacks: str | Attack | Sequence[str | Attack] | Mapping[str, str | Attack] = "auto",
    nodes: Any = "test",
    labels: Labels = "predicted",
    threat: Threat = "white_box",
    surrogates: Sequence[nn.Module] | Mapping[str, nn.Module] = (),
    seed: Seed = 0,
    seeds: Count = 1,
    device: str | torch.device | None = None,
    store: str | Path | None = None,
    progress: bool = True,
) -> RobustnessReport:
    """Attack a trained model on its own graph, and report how much accuracy is left.

    Evasion: the model is not trained again, and is left as it was, as is the graph. Chance with
    the same budget is always run beside the attacks.

    Examples:
        >>> import torch
        >>> from robust_diffusion import Budget, GraphPDE, PGD, evaluate, fit
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
        >>> _ = torch.manual_seed(0)
        >>> model = GraphPDE(16, 8, 7, flow="heat")
        >>> _ = fit(model, data, max_epochs=2, accelerator="cpu")
        >>> budget = Budget(max_injected_nodes=3, max_edges_per_injected_node=3)
        >>> report = evaluate(model, data, attacks=PGD(num_steps=2), budget=budget)
        >>> [attack.name for attack in report.attacks]
        ['random', 'pgd']
        >>> report["pgd"].graph.to_data().num_nodes
        203

    Args:
        model: Any `nn.Module` of (x, edge_index[, edge_weight]) that returns logits, trained.
        data: A PyG `Data` of x, y and undirected edges, the features as the model takes them; or
            the datamodule that the model was trained with.
        budget: What each attack may spend.
        attacks: Names of `conf/attack/` such as auto, pgd or tdgia, attacks that are built already,
            or a dictionary of them by other names.
        nodes: Nodes under attack: test, val, train or all; a boolean mask; or node numbers.
        labels: Classes of the targets as the attacker takes them, `threat.labels` on the command
            line: the model's predictions or the true ones. `auto` always takes the true ones.
        threat: Model that the attacks differentiate: the model itself (white_box), its adaptive
            form (adaptive), or the surrogates alone (black_box).
        surrogates: Trained models on which the attacks are made as well, and then transferred.
        seed: Of all random choices, in 0..2^32 - 1.
        seeds: Number of attack seeds, from `seed` on, at least 1. The report is that of the first,
            with the mean over all and its 95 % interval.
        device: Where to run; `None` for where the model is.
        store: Folder that keeps every attacked graph, so that a call that was cut off goes on where
            it stopped; `None` to keep none.
        progress: Show a bar on a terminal, or log a line a minute.

    Returns:
        The report; see `RobustnessReport`.

    Raises:
        ConfigError: An argument that is not as above, or a model that does not suit the graph.
        DataError: No graph can be like `data`, or `nodes` are none of its nodes.
        AttackError: A model cannot be attacked so; for one, it has no gradient.
    """
    chosen = attacks_of(attacks)
    subject = subject_of(model, data, nodes, device, seed=seed, grows=_injects(chosen))
    cache = None if store is None else ArtifactStore(store, option="store")
    allowed = budget_of(budget, subject, chosen)
    attacker = Attacker(subject, allowed, cache, labels == "true", progress)
    others = surrogates_of(surrogates, subject)
    if threat == "black_box" and not others:
        raise ConfigError("surrogates: none; threat=black_box attacks those, and not the model")
    with ExitStack() as stack:
        for tried in (subject.tried, *others.values()):
            stack.enter_context(tried.ready())
        seen = {name: tried.model for name, tried in others.items()}
        subjects = (subject, *(replace(subject, seed=seed + i) for i in range(1, seeds)))
        reports = [_evaluated(attacker, of, chosen, seen, threat, labels) for of in subjects]
    return _over_seeds(reports)


def _over_seeds(reports: Sequence[RobustnessReport]) -> RobustnessReport:
    """Return the first report, its attacks with their accuracies under every seed."""
    first, *further = reports
    if not further:
        return first
    accuracies = {attack.name: [of[attack.name].accuracy for of in reports] for attack in first}
    attacks = [replace(attack, by_seed=accuracies[attack.name]) for attack in first]
    return replace(first, attacks=attacks)


def _evaluated(
    attacker: Attacker,
    subject: Subject,
    attacks: Mapping[str, Attack],
    surrogates: Mapping[str, nn.Module],
    threat: Threat,
    labels: Labels,
) -> RobustnessReport:
    """Run attacks on models that are ready, controls first, and report them."""
    attacker = replace(attacker, task=subject)
    controls, model = _controls(attacks), subject.model
    rest = {name: attack for name, attack in attacks.items() if name not in controls}
    seen = {} if threat == "black_box" else {"": _form(model, threat)}
    runs = _runs(attacker, {"": model}, controls) + _runs(attacker, seen | {**surrogates}, rest)
    known = [Flag("probabilities", PROBABILITIES)] * subject.tried.gives_probabilities
    measured = evaluate_on(attacker, model, runs, own_flags=known)
    graphs = [outcome.graph for outcome in measured.outcomes.values()]
    sees = subject.tried.sees_edges or _sees_edges(subject, graphs)
    return RobustnessReport(
        model=type(model).__name__,
        clean_accuracy=measured.accuracy["clean"],
        attacks=[_report(run, measured, subject, labels) for run in runs],
        budget=attacker.budget,
        num_targets=subject.targets.numel(),
        threat=threat,
        labels=labels,
        seed=subject.seed,
        flags=measured.flags.get("victim", ()),
        dataset=subject.dataset,
        clean_graph=subject.fingerprint,
        weights=state_hash(model.state_dict()),
        clean=subject.clean,
        notes=() if sees else ("the model sees no edge",),
    )


@validated("")
@own_context()
def attack(
    model: nn.Module,
    data: Data | Served,
    budget: Budget,
    name: str | Attack = "auto",
    *,
    nodes: Any = "test",
    labels: Labels = "predicted",
    threat: Literal["white_box", "adaptive"] = "white_box",
    seed: Seed = 0,
    device: str | torch.device | None = None,
) -> PerturbedGraph:
    """The graph that one attack makes of a clean one; `.to_data()` hands it to PyG.

    Signs that the attack was misled are told in the log; `evaluate` reports them.

    Args:
        model: See `evaluate`, as for all arguments but `name`.
        data: The clean graph.
        budget: What the attack may spend.
        name: The attack.
        nodes: Nodes under attack.
        labels: Classes that the attacker uses.
        threat: Form of the model that the attack differentiates.
        seed: Of all random choices.
        device: Where to run.

    Raises:
        RobustDiffusionError: See `evaluate`.

    Examples:
        >>> from robust_diffusion import GCN, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), "random")
        >>> graph.to_data().num_nodes
        102
    """
    chosen = attacks_of([name])
    subject = subject_of(model, data, nodes, device, seed=seed, grows=_injects(chosen))
    attacker = Attacker(subject, budget_of(budget, subject, chosen), None, labels == "true")
    with subject.tried.ready():
        (run,) = _runs(attacker, {"": _form(subject.model, threat)}, chosen)
        return subject.returned(attacker(run).graph)


def _injects(attacks: Mapping[str, Attack]) -> bool:
    return any(attack.kind == "injection" for attack in attacks.values())


def _runs(
    attacker: Attacker, models: Mapping[str, nn.Module], attacks: Mapping[str, Attack]
) -> list[AttackRun]:
    """Return every attack on every model, by the name of the surrogate or ""."""

    def key(name: str, on: str) -> dict[str, Any]:
        if attacker.cache is None:
            return {}
        # What a key cannot express of a model shows in its predictions.
        logits = attacker.task.logits_of(models[on], attacker.task.graph)
        known = {"model": object_key(models[on]), "logits": tensor_hash(logits)}
        return {"attack": object_key(attacks[name]), **known}

    seen = {
        on: AttackedModel(model, state_hash(model.state_dict())) for on, model in models.items()
    }
    return runs_on(seen, attacks, key)


def _report(run: AttackRun, measured: Evaluation, subject: Subject, labels: str) -> AttackReport:
    """Return the report of one attack."""
    outcome = measured.outcomes[run.label]
    return AttackReport(
        name=run.label,
        kind=run.attack.kind,
        accuracy=measured.accuracy[run.label],
        is_control=run.is_control,
        made_on=run.made_on,
        flags=measured.flags.get(run.label, ()),
        spent=outcome.spent,
        effort=outcome.effort,
        reused=outcome.reused,
        graph=subject.returned(outcome.graph),
        labels="true" if run.attack.is_worst_case else labels,
    )


def _sees_edges(subject: Subject, graphs: Sequence[PerturbedGraph]) -> bool:
    """Return whether the model's logits on some graph change with its edges.

    A filter may drop every clean edge, and let those of an attack through.
    """
    clean, model = subject.graph.edge_index, subject.model
    if subject.tried.sees_edges is None:
        injected = (graph for graph in graphs if len(graph.x) > graph.num_original_nodes)
        before = subject.logits(subject.graph)
        if any(not torch.equal(subject.logits(graph), before) for graph in injected):
            return True  # original nodes keep their features
        if sees_edges(model, *subject.placed(subject.graph), subject.tried.logits):
            return True
    return any(
        not torch.equal(subject.logits(graph), subject.logits(replace(graph, edge_index=clean)))
        for graph in graphs
    )


def _form(model: nn.Module, threat: str) -> nn.Module:
    """Return the model as the attacker differentiates it."""
    return adaptive_form(model) if threat == "adaptive" else model


def _controls(chosen: Mapping[str, Attack]) -> dict[str, Attack]:
    """Chance of each kind of attack, by name."""
    controls = {BASELINES[attack.kind].name: BASELINES[attack.kind] for attack in chosen.values()}
    for name in controls.keys() & chosen.keys():
        if object_key(chosen[name]) != object_key(controls[name]):
            raise ConfigError(
                f"attacks: {name} is the control, which is always run; give this attack another "
                "name, in a dictionary"
            )
    return controls
