"""One run of an experiment: train one model, test it on the clean graph and under every attack."""

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from pytorch_lightning.loggers import Logger
from torch import nn

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, Task, seeded
from robust_diffusion.checks import Seed, check_name, check_value
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import budget_of
from robust_diffusion.evaluation.flags import AttackResult, is_random
from robust_diffusion.evaluation.load import ModelTraining, Recipe
from robust_diffusion.evaluation.measure import (
    Bench,
    Evaluation,
    controls_of,
    evaluate_on,
    measure,
    victim_flags,
)
from robust_diffusion.evaluation.step_ratio import step_flags, step_ratio, warn_of_steps
from robust_diffusion.evaluation.threat import (
    OWN_NAMES,
    Seeding,
    ThreatModel,
    TrainedModel,
)
from robust_diffusion.flows import count_evaluations
from robust_diffusion.models.victim import Victim
from robust_diffusion.operators import current_backend
from robust_diffusion.records.provenance import processor
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The results of one run."""

    accuracy: dict[str, float]  # per test graph, in 0..1; the worst of several surrogates
    mean_accuracy: dict[str, float]  # per test graph, in 0..1; the mean of several surrogates
    attacked: dict[str, dict[str, float]]  # accuracy per attacked model on graphs crafted on it
    parts: dict[str, dict[str, float]]  # the same for each part of an ensemble
    val_accuracy: float  # best validation accuracy, in 0..1
    epochs: int  # epochs trained
    best_epoch: int | None  # epoch of the tested weights, from 1
    nfe: int  # right-hand-side evaluations in one forward pass on the clean test graph
    step_ratio: float | None  # see `evaluation.step_ratio`
    seconds: dict[str, float]  # wall time of each phase, in the original run if reused
    forwards: dict[str, int]  # per attack, forward passes of the attacked model
    split: str  # hash of the split
    split_drawn: bool  # whether the split was drawn by degree; false if it came with the graph
    budget: dict[str, Any]  # limits of each attack, with resolved feature limits
    spent: dict[str, dict[str, Any]]  # spent budget per attack and attacked model
    attack_versions: dict[str, int]  # version of each attack
    unbounded: dict[str, dict[str, str]]  # per attack, limits that it does not observe -> why
    flags: dict[str, list[str]]  # codes per attack and for the `victim`; see `evaluation.flags`
    warnings: dict[str, list[str]]  # the same flags as text
    surrogate_flags: dict[str, list[str]]  # per transferred graph, codes measured on its surrogate
    same_weights: list[str]  # surrogates with the victim's weights, in effect a white box
    reused: list[str]  # parts that came from the cache
    files: dict[str, str]  # cache entries of the victim and of each perturbed graph
    backend: str  # of the operators, on the run's device
    processor: str  # of this run; `reused` parts may have run on another


def evaluate_run(
    train: ModelTraining,
    recipe: Recipe,
    *,
    threat: ThreatModel,
    attacks: Mapping[str, Attack],
    budget: Budget,
    cache_key: Mapping[str, Any],
    logger: Logger | Sequence[Logger] | Literal[False] = False,
    description: str = "victim",
) -> RunResult:
    """Train a victim, attack according to the threat model, and test on all graphs.

    Under evasion, the victim is trained once, on the clean graph; under poisoning, it is also
    trained from scratch on each attacked graph. The seed resets the random state before each model,
    attack and test, so all victims of one seed face the same attacked graphs, shared by the cache.

    Args:
        train: Training with the graph, the cache and the seed.
        recipe: Recipe of the victim.
        threat: Threat model, which selects the models that attacks are crafted on.
        attacks: Attacks by the name of their test graph.
        budget: Limits of every attack.
        cache_key: Configuration of the `model`, the `threat` and each of `attacks`, which
            identifies attacked graphs in the cache.
        logger: Lightning logger for the victim's curves and test accuracies.
        description: Name of the victim in progress bar and log.

    Raises:
        ConfigError: The seed, the budget, the threat or an attack's name is invalid, or a poisoning
            attack injects nodes.
        TrainingError: A loss is not finite.
        AttackError: An attack's gradient is not finite.
    """
    task, device = _checked_task(train, recipe, threat, attacks)
    bench = Bench(
        budget=budget_of(budget, task, attacks),
        threat=threat,
        cache=train.store,
        shows_progress=recipe.fit.progress_bar,
    )
    trained = train("victim", recipe, description=description, logger=logger)
    seconds = {"train": trained.seconds}
    victim = _probed(trained.model, task, device)
    evaluations, ratio = _steps(victim, task)
    own = victim_flags(victim, list(step_flags(ratio)))
    surrogates = _surrogates(threat, cache_key, train, seconds) if attacks else {}
    attacked = {name: _probed(one.model, task, device) for name, one in surrogates.items()}
    with victim:
        own_form = {"": threat.form(victim)} if threat.knows_victim else {}
        results = list(_results(own_form | attacked, task, attacks, bench, cache_key))

    def retrain(label: str, graph: PerturbedGraph) -> Victim:
        on_it = replace(train, datamodule=train.datamodule.poisoned(graph.x, graph.edge_index))
        name = f"victim on {label}"
        retrained = on_it(name, recipe, description=name)
        seconds[name] = retrained.seconds
        return _probed(retrained.model, task, device)

    again = {r.name: retrain(r.name, r.graph) for r in results} if task.poisons else None
    with victim:
        measured = evaluate_on(victim, task, results, own, retrained=again)
    seconds |= {result.name: result.effort["seconds"] for result in results}
    _log_accuracies(logger, measured)
    run_result = RunResult(
        **_of_attacks(attacks, results, measured, trained, victim),
        val_accuracy=trained.val_accuracy,
        epochs=trained.epochs,
        best_epoch=trained.best_epoch,
        nfe=evaluations,
        step_ratio=ratio,
        seconds=seconds | {"test": measured.seconds},
        split=train.datamodule.split_hash,
        split_drawn=train.datamodule.split_drawn,
        budget=bench.budget.bounds,
        backend=current_backend(device.type),
        processor=processor(device),
    )
    _log_end(description, run_result, trained)
    return run_result


def _steps(victim: Victim, task: Task) -> tuple[int, float | None]:
    """Return the right-hand-side evaluations in one pass, and the ratio of `step_ratio`."""
    with count_evaluations(victim.module) as evaluations:
        victim.predict(task.graph, task.seed)
    with seeded(task.seed):
        ratio = step_ratio(victim.module, copy.copy(task.graph).to(victim.device))
    return evaluations.total, ratio


def _log_accuracies(
    logger: Logger | Sequence[Logger] | Literal[False], measured: Evaluation
) -> None:
    for curves in [logger] if isinstance(logger, Logger) else logger or []:
        curves.log_metrics({f"accuracy/{k}": v for k, v in measured.accuracy.items()}, step=0)
        curves.save()


def _log_end(description: str, result: RunResult, victim: TrainedModel) -> None:
    lowest = [f"{name} {100 * share:.2f} %" for name, share in result.accuracy.items()]
    best = f" (best {victim.best_epoch})" if victim.best_epoch else ""
    trained = f"{victim.epochs} epochs{best}, val {100 * victim.val_accuracy:.1f} %"
    end = {"end": f"trained before, {trained}" if victim.reused else trained}
    log.info("%s: accuracy %s", description, ", ".join(lowest), extra=end)


def _of_attacks(
    attacks: Mapping[str, Attack],
    results: Sequence[AttackResult],
    measured: Evaluation,
    trained: TrainedModel,
    victim: Victim,
) -> dict[str, Any]:
    """Return the fields of a result that hold a value for each attack."""
    rows: dict[str, list[float]] = {"clean": [measured.accuracy["clean"]]}
    attacked: dict[str, dict[str, float]] = {}
    spent: dict[str, dict[str, Any]] = {}
    for result in results:
        row, on = result.row, result.surrogate or "victim"
        rows.setdefault(row, []).append(measured.accuracy[result.name])
        attacked.setdefault(on, {"clean": result.clean_accuracy})[row] = result.accuracy
        spent.setdefault(row, {})[on] = asdict(result.spent)
    same = {r.surrogate for r in results if r.surrogate and r.victim.has_weights_of(victim)}
    for name in sorted(same):
        log.warning("surrogate %s: has the victim's weights, a white box", name)
    flags, parts = measured.flags, {r.name: dict(r.graph.part_accuracy) for r in results}
    on_surrogates = {r.name: r.flags for r in results if r.surrogate}
    unbounded = {name: attack.unbounded for name, attack in attacks.items() if attack.unbounded}
    return {
        "accuracy": {name: min(shares) for name, shares in rows.items()},
        "mean_accuracy": {name: sum(shares) / len(shares) for name, shares in rows.items()},
        "attacked": attacked,
        "parts": {label: by_part for label, by_part in parts.items() if by_part},
        "forwards": {r.name: r.effort["forwards"] for r in results},
        "spent": spent,
        "attack_versions": {name: attack.version for name, attack in attacks.items()},
        "unbounded": {
            k: {str(limit): why for limit, why in limits.items()} for k, limits in unbounded.items()
        },
        "flags": {name: [flag.code for flag in signs] for name, signs in flags.items()},
        "warnings": {name: [flag.detail for flag in signs] for name, signs in flags.items()},
        "surrogate_flags": {k: [flag.code for flag in signs] for k, signs in on_surrogates.items()},
        "same_weights": [name for name in attacked if name in same],
        "reused": ["victim"] * trained.reused + [r.name for r in results if r.reused],
        "files": {"victim": trained.path.name} | {r.name: r.file for r in results},
    }


def _checked_task(
    train: ModelTraining, recipe: Recipe, threat: ThreatModel, attacks: Mapping[str, Attack]
) -> tuple[Task, torch.device]:
    """Return the task of the run and its device, raising errors before hours of training."""
    check_value("seed", train.seed, Seed)
    for name in attacks:
        check_name("attacks", name, OWN_NAMES | {"train", "test"})  # names of phases in `seconds`
    injections = [name for name, attack in attacks.items() if attack.kind == "injection"]
    if threat.poisons and injections:
        raise ConfigError(
            f"attack={injections[0]}: injects nodes; threat=poisoning takes an attack that changes "
            "the graph in place, such as metattack"
        )
    datamodule, untrained = train.datamodule, train.untrained(recipe.build).eval()
    clean, classes = datamodule.view("test"), datamodule.num_classes
    tried = Victim(untrained, clean["x"], clean["edge_index"])
    if not tried.traits.in_package:  # models of the package are covered by tests
        grows = bool(injections)
        tried = Victim.probe(untrained, tried.x, tried.edge_index, classes, grows=grows)
    if tried.traits.probabilities:
        raise ConfigError(f"model: {type(untrained).__name__} returns probabilities; return logits")
    threat.form(tried)
    warn_of_steps(untrained, datamodule.view("val"))
    graph, targets = datamodule.graph, datamodule.target_nodes
    device = recipe.fit.trainer().strategy.root_device
    return Task(graph, targets, graph["y"], train.seed, threat.poisons), device


def _probed(model: nn.Module, task: Task, device: torch.device) -> Victim:
    """Return a trained model as a victim; logits that are not finite are flagged, no error."""
    place = task.x.to(device), task.edge_index.to(device)
    return Victim.probe(model.to(device), *place, grows=False, finite=False)


def _surrogates(
    threat: ThreatModel,
    cache_key: Mapping[str, Any],
    train: ModelTraining,
    seconds: dict[str, float],
) -> dict[str, TrainedModel]:
    """Train the surrogates, if any; adds the times of trainings to `seconds`."""
    keys = cache_key["threat"].get("surrogates", {})

    def train_surrogate(
        name: str, build: Callable[..., nn.Module], fit: Fit, seeding: Seeding
    ) -> TrainedModel:
        key = {"model": keys[name], "fit": cache_key["threat"]["fit"]}
        kind = f"surrogate-{name}"
        trained_by = train.named(kind) if seeding == "name" else train
        surrogate = trained_by(kind, Recipe(build, fit, key), description=f"surrogate {name}")
        seconds[f"surrogate {name}"] = surrogate.seconds
        return surrogate

    return threat.surrogates(train_surrogate)


def _results(
    attacked: Mapping[str, Victim],
    task: Task,
    attacks: Mapping[str, Attack],
    bench: Bench,
    cache_key: Mapping[str, Any],
) -> Iterator[AttackResult]:
    """Yield every attack on every attacked model."""
    keys = cache_key["threat"].get("surrogates", {})
    through = {key: cache_key["threat"].get(key) for key in ("adjoint", "gradient")}
    for on, model in attacked.items():
        controls = {} if task.poisons else controls_of(model, task, attacks, bench)
        for name, attack in attacks.items():
            key = {
                "attack": cache_key["attacks"][name],
                "model": keys.get(on, cache_key["model"]),
                "through": through,
            }
            yield measure(
                *(model, task, attack, bench),
                name=name if len(attacked) == 1 else f"{name}/{on}",
                row=name,
                surrogate=on,
                control=None if is_random(attack) else controls.get(attack.kind),
                key=key,
            )
