"""Robustness of any model on any graph, in one call."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch_geometric.data import Data
from tqdm import tqdm

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph
from robust_diffusion.checks import check_choice
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.evaluation.cell import check_seed
from robust_diffusion.evaluation.flags import Flag, weaker_than
from robust_diffusion.evaluation.object_key import object_key
from robust_diffusion.evaluation.perturbed import BASELINES, Attacker
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.evaluation.subject import (
    Subject,
    attacks_of,
    budget_of,
    subject_of,
    surrogates_of,
)
from robust_diffusion.evaluation.threat import AttackedModel, Labels, WhiteBox
from robust_diffusion.evaluation.victim_flags import with_victim_flags
from robust_diffusion.hashes import state_hash, tensor_hash
from robust_diffusion.models.checked import TriedModel, own_context
from robust_diffusion.store import ArtifactStore

Threat = Literal["white_box", "adaptive", "black_box"]


@dataclass(frozen=True, eq=False)
class _Run:
    """One attack on one model."""

    made_on: str  # the surrogate's name; "" for the evaluated model
    name: str
    attack: Attack
    seen: nn.Module  # as the attacker differentiates it


@own_context()
def evaluate(
    model: nn.Module,
    data: Data | GraphDataModule,
    *,
    budget: Budget,
    attacks: str | Attack | Sequence[str | Attack] | Mapping[str, str | Attack] = "auto",
    nodes: Any = "test",
    labels: Labels = "predicted",
    threat: Threat = "white_box",
    surrogates: Sequence[nn.Module] | Mapping[str, nn.Module] = (),
    seed: int = 0,
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
        device: Where to run; `None` for where the model is.
        store: Folder that keeps every attacked graph, so that a call that was cut off goes on where
            it stopped; `None` to keep none.
        progress: Show a bar on a terminal.

    Returns:
        The report; see `RobustnessReport`.

    Raises:
        ConfigError: An argument that is not as above, or a model that does not suit the graph.
        DataError: No graph can be like `data`, or `nodes` are none of its nodes.
        AttackError: A model cannot be attacked so; for one, it has no gradient.
    """
    chosen = attacks_of(attacks)
    subject = subject_of(model, data, nodes, device, grows=_grow(chosen))
    _check_choices(labels, threat, seed)
    budget = budget_of(budget, subject, chosen)
    others = surrogates_of(surrogates, subject)
    if threat == "black_box" and not others:
        raise ConfigError("surrogates: none; threat=black_box attacks those, and not the model")
    controls = _controls(chosen)
    with _running(subject, others, budget, labels, seed, store) as attacker:
        clean_accuracy = subject.accuracy(subject.logits(subject.graph, seed))
        seen = {"": _form(subject.model, threat)} if threat != "black_box" else {}
        runs = [_Run("", name, control, subject.model) for name, control in controls.items()]
        runs += [
            _Run(made_on, name, attack, form)
            for made_on, form in (seen | {k: of.model for k, of in others.items()}).items()
            for name, attack in chosen.items()
            if name not in controls
        ]
        bar = tqdm(runs, "attacks", leave=False, disable=None if progress else True)
        reports = [_report(attacker, subject, run) for run in bar]
        flags = _flags(subject, reports, seed)
    return RobustnessReport(
        model=type(subject.model).__name__,
        clean_accuracy=clean_accuracy,
        attacks=[replace(report, flags=flags.get(report.name, ())) for report in reports],
        budget=budget,
        num_targets=subject.targets.numel(),
        threat=threat,
        labels=labels,
        seed=seed,
        flags=flags.get("victim", ()),
        dataset=str(data.name) if isinstance(data, GraphDataModule) else "",
        clean_graph=subject.fingerprint,
        weights=state_hash(subject.model.state_dict()),
        notes=() if subject.tried.sees_edges else ("the model sees no edge",),
    )


@own_context()
def attack(
    model: nn.Module,
    data: Data | GraphDataModule,
    budget: Budget,
    name: str | Attack = "auto",
    *,
    nodes: Any = "test",
    labels: Labels = "predicted",
    threat: Literal["white_box", "adaptive"] = "white_box",
    seed: int = 0,
    device: str | torch.device | None = None,
) -> PerturbedGraph:
    """The graph that one attack makes of a clean one; `.to_data()` hands it to PyG.

    Signs that the attack was misled are told in the log; `evaluate` reports them.

    Args:
        model: As of `evaluate`, as are all others but this one.
        data: The clean graph.
        budget: What the attack may spend.
        name: The attack.
        nodes: Nodes under attack.
        labels: Classes that the attacker goes by.
        threat: Form of the model that the attack differentiates.
        seed: Of all random choices.
        device: Where to run.

    Raises:
        RobustDiffusionError: As of `evaluate`.

    Examples:
        >>> from robust_diffusion import GCN, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), "random")
        >>> graph.to_data().num_nodes
        102
    """
    ((label, chosen),) = attacks_of([name]).items()
    subject = subject_of(model, data, nodes, device, grows=_grow({label: chosen}))
    _check_choices(labels, threat, seed)
    budget = budget_of(budget, subject, {label: chosen})
    with _running(subject, {}, budget, labels, seed, None) as attacker:
        run = _Run("", label, chosen, _form(subject.model, threat))
        return _report(attacker, subject, run).graph


@contextmanager
def _running(
    subject: Subject,
    others: Mapping[str, TriedModel],
    budget: Budget,
    labels: str,
    seed: int,
    store: str | Path | None,
) -> Iterator[Attacker]:
    """All models in eval mode, and who attacks them."""
    with ExitStack() as stack:
        for tried in (subject.tried, *others.values()):
            stack.enter_context(tried.ready())
        yield Attacker(
            task=subject,
            budget=budget,
            seed=seed,
            store=ArtifactStore(
                stack.enter_context(TemporaryDirectory()) if store is None else store,
                option="store",
            ),
            knows_labels=labels == "true",
        )


def _report(attacker: Attacker, subject: Subject, run: _Run) -> AttackReport:
    """Run one attack, or take its graph from the store, and test the model on it."""
    seed, name = attacker.seed, f"{run.name}/{run.made_on}" if run.made_on else run.name
    key = {
        "attack": object_key(run.attack),
        "model": object_key(run.seen),
        # Whatever a key cannot tell of a model shows in what it predicts.
        "logits": tensor_hash(subject.logits_of(run.seen, subject.graph, seed)),
    }
    attacked = AttackedModel(run.seen, state_hash(run.seen.state_dict()))
    try:
        outcome = attacker(name, run.attack, attacked, key)
    except AttackError as error:
        if not run.made_on:
            raise
        raise AttackError(f"surrogates[{run.made_on}]: {error}") from error
    return AttackReport(
        name=name,
        kind=run.attack.kind,
        accuracy=subject.accuracy(subject.logits(outcome.graph, seed)),
        is_control=run.attack is BASELINES[run.attack.kind],
        made_on=run.made_on,
        flags=outcome.flags,
        spent=outcome.spent,
        seconds=outcome.seconds,
        reused=outcome.reused,
        graph=replace(outcome.graph, clean=subject.given),
    )


def _flags(subject: Subject, reports: Sequence[AttackReport], seed: int) -> dict[str, list[Flag]]:
    """Flags of each attack, those of the model's own predictions and of transfer included."""
    found: dict[str, list[Flag]] = {report.name: list(report.flags) for report in reports}
    for report in reports:
        if report.made_on or report.is_control:
            continue
        transferred = [r.accuracy for r in reports if r.made_on and r.kind == report.kind]
        other = min(transferred, default=1.0)
        if flag := weaker_than(report.accuracy, other, "weaker_than_transfer"):
            found[report.name].append(flag)
    if subject.tried.gives_probabilities:
        text = "the model returns probabilities, attacked through their logarithm; return logits"
        found["victim"] = [Flag("probabilities", text)]
    graphs = {report.name: [report.graph] for report in reports}
    return with_victim_flags(found, subject.model, subject, graphs, seed=seed)


def _form(model: nn.Module, threat: str) -> nn.Module:
    """The model as the attacker differentiates it."""
    return WhiteBox(gradient="adaptive" if threat == "adaptive" else None).seen(model)


def _grow(chosen: Mapping[str, Attack]) -> bool:
    return any(attack.kind == "injection" for attack in chosen.values())


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


def _check_choices(labels: str, threat: str, seed: int) -> None:
    check_choice("labels", labels, get_args(Labels))
    check_choice("threat", threat, get_args(Threat))
    check_seed(seed)
