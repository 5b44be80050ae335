"""Robustness of any model on any graph, in one call."""

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
    """A model that was tried on a graph, and the nodes at which it is attacked."""

    tried: TriedModel  # the model as it was passed, or a copy on another device
    original: Data  # the graph as it was passed, with its masks
    grows: bool = True  # nodes may be added to the graph
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
        held = {k: v for k, v in passed if isinstance(v, Tensor) and v.layout == torch.strided}
        seen = {key: self.graph[key] for key in ("x", "edge_index", "y")}
        return Data(**{**held, **seen, "target_nodes": self.targets})

    def returned(self, graph: PerturbedGraph) -> PerturbedGraph:
        """Return the attacked graph that users get, edges in the order of the clean graph."""
        row = sorted_row(clean_graph(self.graph)[1])
        (edges,) = sorted_by(row, graph.edge_index)
        return replace(graph, edge_index=edges, clean=self.original)


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
        reports = [_evaluated(attacker, task, chosen, seen, threat, labels) for task in subjects]
    return reports[0] if seeds == 1 else _by_seed(reports)


def _by_seed(reports: Sequence[RobustnessReport]) -> RobustnessReport:
    """The first report, each attack with its accuracy on every seed."""
    first = reports[0]
    found = {row.name: [report[row.name].accuracy for report in reports] for row in first}
    return replace(first, attacks=[replace(row, by_seed=found[row.name]) for row in first])


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

    `grows`: nodes may be added to the graph.
    """
    original, name = (data.graph, str(data.name)) if isinstance(data, Served) else (data, "")
    if not isinstance(original, Data):
        checked_graph(original, {})  # says what it is
    if isinstance(data, Served) and isinstance(nodes, str) and nodes == "test":
        nodes = data.target_nodes
    targets = node_index(original, nodes)
    graph = checked_graph(original, {"nodes": targets})
    if hasattr(model, "training_step"):
        # Late, since it imports Lightning, which is loaded already if there is such a model.
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
    """Attacks by name, from a name, an attack, several of them, or a mapping."""
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
        # With a slash it could be that of an attack on a surrogate.
        name = check_name("attacks", attack.name if name is None else str(name), OWN_NAMES)
        if name in by_name:
            raise ConfigError(f"attacks: two are named {name}; give a dictionary with other names")
        by_name[name] = attack
    if not by_name:
        raise ConfigError("attacks: none is named; give one, such as auto")
    return by_name


def budget_of(budget: Any, task: Task, attacks: Mapping[str, Attack]) -> Budget:
    """The budget as far as the target nodes can take it, its feature limits resolved."""
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
    """Refuse a budget of which an attack can spend nothing."""
    injects = attack.kind == "injection"
    keys = ["max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges"]
    if not injects:  # by edges or, if it can, by features
        keys = ["edge_ratio", "node_ratio"][: 1 + attack.changes_features]
    missing = [key for key in keys if getattr(budget, key) == 0]
    if missing and (injects or missing == keys):
        arguments = ", ".join(f"{key}=..." for key in missing)
        raise ConfigError(
            f"budget.{missing[0]}: expected more than 0 for attack={name}, got 0; use "
            f"Budget({arguments})"
        )


def surrogates_of(surrogates: Any, subject: Subject) -> dict[str, TriedModel]:
    """Surrogates by name, from a mapping or a list, whose names are those of their classes."""
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
    """The model, or a copy of it if it is on another device, tried on the graph."""
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
