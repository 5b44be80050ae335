"""Robustness of any model on any graph, in one call."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, Task
from robust_diffusion.attacks.named import build_attack
from robust_diffusion.attacks.task import Knowledge
from robust_diffusion.checks import Count, Seed, check_name, validated
from robust_diffusion.data.validate import Served, checked_graph, node_index
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.flags import AttackResult, Flag, control_of, graph_hash, is_random
from robust_diffusion.evaluation.measure import (
    Bench,
    Evaluation,
    controls_of,
    evaluate_on,
    measure,
    victim_flags,
)
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.evaluation.threat import (
    OWN_NAMES,
    OpenThreat,
    ThreatModel,
    ThreatName,
    threat_model,
)
from robust_diffusion.models.modules import copy_of, device_of, dtype_of, own_context
from robust_diffusion.models.victim import Victim, sorted_by, sorted_row
from robust_diffusion.records.content import object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.tensor_hashes import tensor_hash

PROBABILITIES = "the model returns probabilities, attacked through their logarithm; return logits"


@dataclass(frozen=True, eq=False)
class Source:
    """Where the graph of a task comes from, for the graphs that users get."""

    original: Data  # the graph as it was passed, with its masks
    dataset: str = ""  # name of the datamodule's dataset

    def clean(self, task: Task) -> Data:
        """Return the graph as models see it, with its targets and the tensors passed with it."""
        passed = self.original.to_dict().items()
        tensors = {k: v for k, v in passed if isinstance(v, Tensor) and v.layout == torch.strided}
        seen = {key: task.graph[key] for key in ("x", "edge_index", "y")}
        return Data(**{**tensors, **seen, "target_nodes": task.targets})

    def returned(self, task: Task, graph: PerturbedGraph) -> PerturbedGraph:
        """Return the attacked graph that users get, edges in the order of the clean graph."""
        (edges,) = sorted_by(sorted_row(task.edge_index), graph.edge_index)
        clean = copy.copy(self.original)
        clean.x = task.x  # a copy of its own, which the caller cannot change
        return replace(graph, edge_index=edges, clean=clean)


@validated("")
@own_context()
def evaluate(
    model: nn.Module,
    data: Data | Served,
    budget: Budget,
    attacks: str | Attack | Sequence[str | Attack] | Mapping[str, str | Attack] = "auto",
    *,
    targets: Any = "test",
    attacker_knows: Knowledge = "predictions",
    threat: ThreatName = "white_box",
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
        targets: Nodes under attack: test, val, train or all; a boolean mask; or node numbers.
        attacker_knows: Classes of the targets that the attacker uses: the model's `predictions` or
            the true `labels`. `auto` always uses the labels.
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
        DataError: `data` is not a valid graph, or `targets` are not nodes of it.
        AttackError: An attack cannot run on a model, for example for lack of a gradient.
    """
    by_name = attacks_of(attacks)
    grows = _injects(by_name)
    victim, task, source = probed(model, data, targets, device, seed=seed, grows=grows)
    named = surrogates_of(surrogates)
    bench = Bench(
        budget=budget_of(budget, task, by_name),
        threat=threat_model(threat, attacker_knows, named),
        cache=None if store is None else ArtifactStore(store, option="store"),
        shows_progress=progress,
        falls_back=True,
    )
    attacked = attacked_models(bench.threat, named, victim, task, grows=grows)
    with victim:
        given = source, bench, by_name, attacked
        reports = [_report(victim, replace(task, seed=seed + i), *given) for i in range(seeds)]
    return reports[0] if seeds == 1 else _by_seed(reports)


def _by_seed(reports: Sequence[RobustnessReport]) -> RobustnessReport:
    """Return the first report, with the accuracy of each attack on every seed, and all flags."""

    def merged(row: AttackReport) -> AttackReport:
        rows = [report[row.name] for report in reports]
        flags = dict.fromkeys(flag for of_seed in rows for flag in of_seed.flags)
        return replace(row, by_seed=[of_seed.accuracy for of_seed in rows], flags=[*flags])

    flags = dict.fromkeys(flag for report in reports for flag in report.flags)
    return replace(reports[0], attacks=[merged(row) for row in reports[0]], flags=[*flags])


def _report(
    victim: Victim,
    task: Task,
    source: Source,
    bench: Bench,
    attacks: Mapping[str, Attack],
    attacked: Mapping[str, Victim],
) -> RobustnessReport:
    """Run attacks on victims within their context, controls first, and report them."""
    known = [Flag("probabilities", PROBABILITIES)] * victim.traits.probabilities
    own = victim_flags(victim, known)
    results = list(_results(victim, task, bench, attacks, attacked))
    measured = evaluate_on(victim, task, results, own)
    return RobustnessReport(
        model=type(victim.model).__name__,
        clean_accuracy=measured.accuracy["clean"],
        attacks=[_row(result, measured, task, source, bench) for result in results],
        budget=bench.budget,
        num_targets=task.targets.numel(),
        threat=bench.threat.name,
        attacker_knows=bench.threat.attacker_knows,
        seed=task.seed,
        flags=measured.flags.get("victim", ()),
        dataset=source.dataset,
        clean_graph=graph_hash(task.graph, task.targets),
        weights=victim.weights,
        clean=source.clean(task),
        notes=() if _reads_edges(victim, task, results) else ("the model sees no edge",),
    )


def _results(
    victim: Victim,
    task: Task,
    bench: Bench,
    attacks: Mapping[str, Attack],
    attacked: Mapping[str, Victim],
) -> Iterator[AttackResult]:
    """Yield the random controls on the victim, and then every attack on every attacked model."""

    def key(attack: Attack, model: Victim) -> dict[str, Any]:
        if bench.cache is None:
            return {}
        # The logits cover properties of a model that its key cannot express.
        logits = model.clean_predictions(task.seed)[task.targets]
        known = {"model": object_key(model.model), "logits": tensor_hash(logits)}
        return {"attack": object_key(attack), **known}

    random, own = _controls(attacks), {}
    for name, attack in random.items():
        own[attack.kind] = measure(victim, task, attack, bench, name=name, key=key(attack, victim))
    yield from own.values()
    rest = {name: attack for name, attack in attacks.items() if name not in random}
    for on, model in attacked.items():
        controls = own if model is victim else controls_of(model, task, rest, bench)
        for name, attack in rest.items():
            yield measure(
                *(model, task, attack, bench),
                name=f"{name}/{on}" if on else name,
                surrogate=on,
                control=controls[attack.kind],
                key=key(attack, model),
            )


@validated("")
@own_context()
def attack(
    model: nn.Module,
    data: Data | Served,
    budget: Budget,
    name: str | Attack = "auto",
    *,
    targets: Any = "test",
    attacker_knows: Knowledge = "predictions",
    threat: OpenThreat = "white_box",
    seed: Seed = 0,
    device: str | torch.device | None = None,
) -> PerturbedGraph:
    """Run one attack and return the perturbed graph; `.to_data()` converts it to PyG.

    Flags of the attack are logged as warnings; use `evaluate` to get all flags in a report.

    Args:
        model: Trained model, as in `evaluate`.
        data: The clean graph, as in `evaluate`.
        budget: Limits of the attack, as in `evaluate`.
        name: Name of the attack from `conf/attack/`, or an attack object.
        targets: Nodes under attack, as in `evaluate`.
        attacker_knows: Classes that the attacker uses, as in `evaluate`.
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
    victim, task, source = probed(model, data, targets, device, seed=seed, grows=_injects(by_name))
    bench = Bench(
        budget=budget_of(budget, task, by_name),
        threat=threat_model(threat, attacker_knows),
        falls_back=True,
    )
    with victim:
        form, (one,) = bench.threat.form(victim), by_name.values()
        control = None
        if not is_random(one):
            control = controls_of(form, task, by_name, bench)[one.kind]
        result = measure(form, task, one, bench, control=control)
    return source.returned(task, result.graph)


def _injects(attacks: Mapping[str, Attack]) -> bool:
    return any(attack.kind == "injection" for attack in attacks.values())


def _row(
    result: AttackResult, measured: Evaluation, task: Task, source: Source, bench: Bench
) -> AttackReport:
    """Return the report of one attack."""
    return AttackReport(
        name=result.name,
        kind=result.attack.kind,
        accuracy=measured.accuracy[result.name],
        is_control=result.is_control,
        made_on=result.surrogate,
        flags=measured.flags.get(result.name, ()),
        spent=result.spent,
        effort=result.effort,
        reused=result.reused,
        graph=source.returned(task, result.graph),
        attacker_knows=bench.known_to(result.attack),
    )


def _reads_edges(victim: Victim, task: Task, results: Sequence[AttackResult]) -> bool:
    """Return whether the model's logits on some graph change with its edges.

    A filter may drop every clean edge but let those of an attack through.
    """
    # Original nodes keep their features if others are injected.
    own = [result for result in results if result.victim is victim and result.grew]
    if victim.traits.in_package and any(not torch.equal(r.before, r.after) for r in own):
        return True
    graphs = [result.graph for result in results]
    return victim.reads_edges or any(
        not torch.equal(*(victim.predict(g, task.seed)[task.targets] for g in pair))
        for pair in ((graph, replace(graph, edge_index=task.edge_index)) for graph in graphs)
    )


def _controls(attacks: Mapping[str, Attack]) -> dict[str, Attack]:
    """Return the random control for each kind of attack, by name."""
    controls = {control_of(attack).name: control_of(attack) for attack in attacks.values()}
    for name in controls.keys() & attacks.keys():
        if object_key(attacks[name]) != object_key(controls[name]):
            raise ConfigError(
                f"attacks: {name} is the control, which is always run; give this attack another "
                "name, in a dictionary"
            )
    return controls


def probed(
    model: nn.Module,
    data: Data | Served,
    targets: Any,
    device: str | torch.device | None,
    *,
    seed: int = 0,
    grows: bool = True,
) -> tuple[Victim, Task, Source]:
    """Check a model, a graph and the nodes under attack; see `evaluate` for the arguments.

    Set `grows` to false if no nodes will be added to the graph.
    """
    original, name = (data.graph, str(data.name)) if isinstance(data, Served) else (data, "")
    if not isinstance(original, Data):
        checked_graph(original, {})  # raises an error that names its type
    if isinstance(data, Served) and isinstance(targets, str) and targets == "test":
        targets = data.target_nodes
    targets = node_index(original, targets)
    graph = checked_graph(original, {"targets": targets})
    model = _network(model)
    # A copy, since the model may write to it.
    graph.x = graph["x"].to(dtype_of(model, graph["x"].dtype), copy=True)
    task = Task(graph, targets, graph["y"], seed)
    place = device_of(model) if device is None else _device(device)
    victim = _probe(model, task, "model", place, grows=grows)
    victim.check_dropped_edges(original["edge_index"].to(victim.device))
    return victim, task, Source(original, name)


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
            f"budget: expected a Budget, got a {type(budget).__name__}; use "
            "Budget(max_injected_nodes=..., max_edges_per_injected_node=...)"
        )
    for name, attack in attacks.items():
        _check_allows(budget, name, attack)
    return budget.within(task.targets.numel()).resolve(task.x)


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


def surrogates_of(surrogates: Any) -> dict[str, Any]:
    """Return surrogates by name, from a mapping, or several that are named by their classes."""
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
    return dict(zip(names, surrogates.values(), strict=True))


def attacked_models(
    threat: ThreatModel,
    surrogates: Mapping[str, Any],
    victim: Victim,
    task: Task,
    *,
    grows: bool,
) -> dict[str, Victim]:
    """Return the attacked models by name: the victim, by "", if it is known, and surrogates."""
    attacked = {"": threat.form(victim)} if threat.knows_victim else {}
    for name, model in surrogates.items():
        key = f"surrogates[{name}]"
        attacked[name] = _probe(_network(model), task, key, victim.device, grows=grows)
        if attacked[name].has_weights_of(victim):
            raise ConfigError(
                f"{key}: has the weights of the model itself, which is a white box; train another"
            )
    return attacked


def _network(model: Any) -> Any:
    """Return the network of a module that Lightning trained, or the model itself."""
    if not hasattr(model, "training_step"):
        return model
    # Imported late: this loads Lightning, which a model with `training_step` has loaded anyway.
    from robust_diffusion.training import NodeClassification

    return model.model if isinstance(model, NodeClassification) else model


def _probe(model: Any, task: Task, name: str, device: torch.device, *, grows: bool) -> Victim:
    """Probe a model on the graph; a model on another device is copied."""
    if isinstance(model, nn.Module) and device_of(model) != device:
        model = copy_of(model).to(device)
    x, edge_index, classes = (
        task.x.to(device),
        task.edge_index.to(device),
        int(task.labels.max()) + 1,
    )
    return Victim.probe(model, x, edge_index, classes, name=name, grows=grows)


def _device(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={device}: is not there ({reason}); cpu always is") from error
