"""Robustness of any model on any graph, in one call."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph
from robust_diffusion.attacks.base import clean_graph
from robust_diffusion.attacks.named import build_attack
from robust_diffusion.checks import Count, Seed, check_name, validated
from robust_diffusion.data.validate import Served, checked_graph, node_index
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.flags import Flag, Task, graph_hash
from robust_diffusion.evaluation.perturbed import (
    BASELINES,
    Attacker,
    AttackRun,
    Evaluation,
    evaluate_on,
    runs_on,
)
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.evaluation.threat import OWN_NAMES, Labels
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.checked import (
    TriedModel,
    check_dropped_edges,
    check_model,
    copy_of,
    device_of,
    dtype_of,
    has_own_layers,
    is_random,
    own_context,
    sees_edges,
    sorted_by,
    sorted_row,
)
from robust_diffusion.records.content import object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

Threat = Literal["white_box", "adaptive", "black_box"]

PROBABILITIES = "the model returns probabilities, attacked through their logarithm; return logits"


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject(Task):
    """A model that was tried on a graph, and its target nodes."""

    tried: TriedModel  # the model as it was passed, or a copy on another device
    original: Data  # the graph as it was passed, with its masks
    grows: bool = True  # whether nodes may be added to the graph
    dataset: str = ""  # name of the datamodule's dataset

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.tried.model

    def logits(self, graph: Data | PerturbedGraph) -> Float[Tensor, "t c"]:
        """Return the model's logits of the targets, on the CPU."""
        return self.logits_of(self.model, graph)

    def accuracy_on(self, graph: Data | PerturbedGraph) -> float:
        """Return the model's accuracy at the targets of a graph, in 0..1."""
        return self.accuracy(self.logits(graph))

    @property
    def clean(self) -> Data:
        """The graph as the model sees it, with its targets and the tensors passed with it."""
        passed = self.original.to_dict().items()
        tensors = {k: v for k, v in passed if isinstance(v, Tensor) and v.layout == torch.strided}
        seen = {key: self.graph[key] for key in ("x", "edge_index", "y")}
        return Data(**{**tensors, **seen, "target_nodes": self.targets})

    def returned(self, graph: PerturbedGraph) -> PerturbedGraph:
        """Return the attacked graph that users get, edges in the order of the clean graph."""
        row = sorted_row(clean_graph(self.graph)[1])
        (edges,) = sorted_by(row, graph.edge_index)
        clean = copy.copy(self.original)
        clean.x = self.graph.x  # a copy of its own, which the caller cannot change
        return replace(graph, edge_index=edges, clean=clean)


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
    """Attack a trained model on its graph, and report its accuracy under each attack.

    This is evasion: model and graph stay as they are. A random attack of the same budget is the
    control; an ensemble such as `auto` that does less harm reports the control's graph, flagged.

    Examples:
        >>> from robust_diffusion import Budget, GraphPDE, evaluate, fit
        >>> from robust_diffusion.attacks import PGD
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
        >>> model = GraphPDE(16, 8, out_channels=7, flow="heat")
        >>> _ = fit(model, data, max_epochs=2, accelerator="cpu")
        >>> budget = Budget(max_injected_nodes=3, max_edges_per_injected_node=3)
        >>> report = evaluate(model, data, attacks=PGD(num_steps=2), budget=budget)
        >>> [attack.name for attack in report.attacks]
        ['random', 'pgd']
        >>> report["pgd"].graph.to_data().num_nodes
        203

    Args:
        model: Any trained `nn.Module` that maps (x, edge_index[, edge_weight]) to logits.
        data: A PyG `Data` with y, undirected edges, and the features x that the model expects; or
            the datamodule that the model was trained with.
        budget: Limits of each attack.
        attacks: Names from `conf/attack/` such as auto, pgd or tdgia, attack objects, or a
            dictionary of either with custom names.
        nodes: Nodes under attack: test, val, train or all; a boolean mask; or node numbers.
        labels: Classes of the targets that the attacker uses, `threat.labels` on the command line:
            the model's predictions or the true labels. `auto` always uses the true labels.
        threat: Model that the attacks differentiate: the model itself (white_box), its adaptive
            form (adaptive), or only the surrogates (black_box).
        surrogates: Trained models on which the attacks are crafted as well, and then transferred.
        seed: Seed of all random choices, in 0..2^32 - 1.
        seeds: Number of attack seeds, counted up from `seed`, at least 1. The report is that of the
            first, with the mean over all and its 95 % interval.
        device: Device to run on; `None` for the model's device.
        store: Folder that caches every attacked graph, so that an interrupted call resumes where it
            stopped; `None` for no cache.
        progress: Show a bar on a terminal, or log a line a minute.

    Returns:
        The report; see `RobustnessReport`.

    Raises:
        ConfigError: An argument is invalid, or the model does not fit the graph.
        DataError: `data` is not a valid graph, or `nodes` are not nodes of it.
        AttackError: An attack cannot run on a model, for example for lack of a gradient.
    """
    by_name = attacks_of(attacks)
    subject = subject_of(model, data, nodes, device, seed=seed, grows=_injects(by_name))
    cache = None if store is None else ArtifactStore(store, option="store")
    allowed = budget_of(budget, subject, by_name)
    attacker = Attacker(subject, allowed, cache, labels == "true", progress, falls_back=True)
    others = surrogates_of(surrogates, subject)
    if threat == "black_box" and not others:
        raise ConfigError("surrogates: none; threat=black_box attacks those, and not the model")
    with ExitStack() as stack:
        for tried in (subject.tried, *others.values()):
            stack.enter_context(tried.ready())
        seen = {name: tried.model for name, tried in others.items()}
        subjects = (subject, *(replace(subject, seed=seed + i) for i in range(1, seeds)))
        reports = [_evaluated(attacker, task, by_name, seen, threat, labels) for task in subjects]
    return reports[0] if seeds == 1 else _by_seed(reports)


def _by_seed(reports: Sequence[RobustnessReport]) -> RobustnessReport:
    """Return the first report, with the accuracy of each attack on every seed."""
    first = reports[0]
    accuracies = {row.name: [report[row.name].accuracy for report in reports] for row in first}
    return replace(first, attacks=[replace(row, by_seed=accuracies[row.name]) for row in first])


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
        clean_graph=graph_hash(subject.graph, subject.targets),
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
    """Run one attack and return the perturbed graph; `.to_data()` converts it to PyG.

    Flags are only logged as warnings; use `evaluate` to get them in a report.

    Args:
        model: Trained model, as in `evaluate`.
        data: The clean graph, as in `evaluate`.
        budget: Limits of the attack.
        name: Name of the attack from `conf/attack/`, or an attack object.
        nodes: Nodes under attack, as in `evaluate`.
        labels: Classes that the attacker uses, predicted or true.
        threat: Form of the model that the attack differentiates.
        seed: Seed of all random choices.
        device: Device to run on; `None` for the model's device.

    Raises:
        RobustDiffusionError: See `evaluate`.

    Examples:
        >>> from robust_diffusion import Budget, attack
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, out_channels=7), data, Budget(2, 3), "random")
        >>> graph.to_data().num_nodes
        102
    """
    by_name = attacks_of([name])
    subject = subject_of(model, data, nodes, device, seed=seed, grows=_injects(by_name))
    allowed = budget_of(budget, subject, by_name)
    attacker = Attacker(subject, allowed, None, labels == "true", falls_back=True)
    with subject.tried.ready():
        (run,) = _runs(attacker, {"": _form(subject.model, threat)}, by_name)
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
        # The logits cover properties of a model that its key cannot express.
        logits = attacker.task.logits_of(models[on], attacker.task.graph)
        known = {"model": object_key(models[on]), "logits": tensor_hash(logits)}
        return {"attack": object_key(attacks[name]), **known}

    seen = {on: (model, state_hash(model.state_dict())) for on, model in models.items()}
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

    A filter may drop every clean edge but let those of an attack through.
    """
    clean, model = subject.graph.edge_index, subject.model
    if subject.tried.sees_edges is None:
        injected = (graph for graph in graphs if graph.num_injected_nodes > 0)
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


def _controls(attacks: Mapping[str, Attack]) -> dict[str, Attack]:
    """Return the random control for each kind of attack, by name."""
    controls = {BASELINES[attack.kind].name: BASELINES[attack.kind] for attack in attacks.values()}
    for name in controls.keys() & attacks.keys():
        if object_key(attacks[name]) != object_key(controls[name]):
            raise ConfigError(
                f"attacks: {name} is the control, which is always run; give this attack another "
                "name, in a dictionary"
            )
    return controls


def subject_of(
    model: nn.Module,
    data: Data | Served,
    nodes: Any,
    device: str | torch.device | None,
    *,
    seed: int = 0,
    grows: bool = True,
) -> Subject:
    """Check a model, a graph and the nodes under attack; see `evaluate` for the arguments.

    Set `grows` to false if no nodes will be added to the graph.
    """
    original, name = (data.graph, str(data.name)) if isinstance(data, Served) else (data, "")
    if not isinstance(original, Data):
        checked_graph(original, {})  # raises an error that names its type
    if isinstance(data, Served) and isinstance(nodes, str) and nodes == "test":
        nodes = data.target_nodes
    targets = node_index(original, nodes)
    graph = checked_graph(original, {"nodes": targets})
    if hasattr(model, "training_step"):
        # Imported late: this loads Lightning, which a model with `training_step` has loaded anyway.
        from robust_diffusion.training import NodeClassification

        model = model.model if isinstance(model, NodeClassification) else model
    place = device_of(model) if device is None else _device(device)
    assert graph.x is not None
    # A copy, since the model may write to it.
    graph.x = graph.x.to(dtype_of(model, graph.x.dtype), copy=True)
    task = Task(graph, targets, place)
    tried = _try(model, task, "model", grows=grows)
    x, edge_index = task.placed(graph)
    check_dropped_edges(tried.model, x, original.edge_index.to(edge_index), edge_index)
    subject = Subject(
        *(graph, targets, place),
        seed=seed,
        tried=tried,
        original=original,
        grows=grows,
        dataset=name,
    )
    logits = tried.logits.cpu()
    subject.once("another pass", tried.model, lambda: logits)
    known = has_own_layers(tried.model) and not is_random(tried.model)
    if known and not tried.gives_probabilities:
        subject._logits[graph] = {id(tried.model): (tried.model, logits)}
    return subject


def attacks_of(attacks: Any) -> dict[str, Attack]:
    """Return attacks by name, from a name, an attack, several of these, or a mapping."""
    several = isinstance(attacks, list | tuple | Mapping)
    items = (
        attacks.items()
        if isinstance(attacks, Mapping)
        else [(None, attack) for attack in (attacks if several else [attacks])]
    )
    by_name: dict[str, Attack] = {}
    for name, spec in items:
        attack = build_attack(spec) if isinstance(spec, str) else spec
        if not isinstance(attack, Attack):
            raise ConfigError(
                f"attacks: holds a {type(attack).__name__}; give names such as auto, or attacks "
                "such as TDGIA(num_steps=50)"
            )
        # A name with a slash could be that of an attack on a surrogate.
        name = check_name("attacks", attack.name if name is None else str(name), OWN_NAMES)
        if name in by_name:
            raise ConfigError(f"attacks: two are named {name}; give a dictionary with other names")
        by_name[name] = attack
    if not by_name:
        raise ConfigError("attacks: none is named; give one, such as auto")
    return by_name


def budget_of(budget: Any, task: Task, attacks: Mapping[str, Attack]) -> Budget:
    """Cap the budget to the target nodes, and resolve its feature limits."""
    if not isinstance(budget, Budget):
        raise ConfigError(
            f"budget: is a {type(budget).__name__}; give a Budget(max_injected_nodes=..., "
            "max_edges_per_injected_node=...)"
        )
    for name, attack in attacks.items():
        _check_allows(budget, name, attack)
    assert task.graph.x is not None
    return budget.within(task.targets.numel()).resolve(task.graph.x)


def _check_allows(budget: Budget, name: str, attack: Attack) -> None:
    """Raise a `ConfigError` if the budget does not allow an attack any change."""
    injects = attack.kind == "injection"
    keys = ["max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges"]
    if not injects:  # edges, and features if the attack changes them; one of these is enough
        keys = ["edge_ratio", "node_ratio"][: 1 + attack.changes_features]
    missing = [key for key in keys if getattr(budget, key) == 0]
    if missing and (injects or missing == keys):
        arguments = ", ".join(f"{key}=..." for key in missing)
        raise ConfigError(
            f"budget.{missing[0]}: expected more than 0 for attack={name}, got 0; use "
            f"Budget({arguments})"
        )


def surrogates_of(surrogates: Any, subject: Subject) -> dict[str, TriedModel]:
    """Return surrogates by name, from a mapping, or from a list with class names as names."""
    if isinstance(surrogates, nn.Module) or not isinstance(surrogates, Mapping | list | tuple):
        raise ConfigError(
            f"surrogates: is a {type(surrogates).__name__}; give a list of trained models"
        )
    if not isinstance(surrogates, Mapping):
        named: dict[str, Any] = {}
        for model in surrogates:
            of_class = type(model).__name__
            same = sum(name.split(" ")[0] == of_class for name in named)
            named[f"{of_class} {same + 1}" if same else of_class] = model
        surrogates = named
    names = [check_name("surrogates", str(name), OWN_NAMES) for name in surrogates]
    if len(set(names)) < len(names):
        raise ConfigError(f"surrogates: two share a name of {', '.join(names)}; give each its own")
    weights = state_hash(subject.model.state_dict()) if list(subject.model.parameters()) else ""
    for name, model in surrogates.items():
        if isinstance(model, nn.Module) and state_hash(model.state_dict()) == weights:
            raise ConfigError(
                f"surrogates[{name}]: has the weights of the model itself, which is a white box; "
                "train another"
            )
    return {
        str(name): _try(model, subject, f"surrogates[{name}]", grows=subject.grows)
        for name, model in surrogates.items()
    }


def _try(model: Any, task: Task, name: str, *, grows: bool) -> TriedModel:
    """Try a model on the graph; a model on another device is copied."""
    if isinstance(model, nn.Module) and device_of(model) != task.device:
        model = copy_of(model).to(task.device)
    classes = int(task.labels.max()) + 1
    return check_model(model, *task.placed(task.graph), classes, name=name, grows=grows)


def _device(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={device}: is not there ({reason}); cpu always is") from error
