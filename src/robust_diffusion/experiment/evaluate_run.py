"""One run of an experiment: train one model, test it on the clean graph and under every attack."""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pytorch_lightning.loggers import Logger
from torch import nn

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, seeded
from robust_diffusion.checks import Seed, check_name, check_value
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import budget_of
from robust_diffusion.evaluation.flags import Task, writes_into_inputs
from robust_diffusion.evaluation.load import ModelTraining, Recipe
from robust_diffusion.evaluation.perturbed import (
    Attacker,
    AttackRun,
    Evaluation,
    evaluate_on,
    runs_on,
)
from robust_diffusion.evaluation.step_ratio import step_flags, step_ratio, warn_of_steps
from robust_diffusion.evaluation.threat import (
    OWN_NAMES,
    Poisoning,
    Seeding,
    ThreatModel,
    TrainedModel,
)
from robust_diffusion.flows import count_evaluations
from robust_diffusion.models.checked import check_model, has_own_layers
from robust_diffusion.operators import current_backend
from robust_diffusion.records.provenance import processor
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)

Config = Mapping[str, Any]


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
    declared: dict[str, Any]  # budget of each attack, with resolved feature limits
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
    cache_key: Config,
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
    task = _checked_task(train, recipe, threat, attacks)
    budget = budget_of(budget, task, attacks)
    victim = train("victim", recipe, description=description, logger=logger)
    seconds = {"train": victim.seconds}
    runs = _runs(threat, attacks, cache_key, victim, train, seconds) if attacks else []
    tested = victim.model.to(task.device)
    with count_evaluations(tested) as evaluations:
        task.logits_of(tested, task.graph)
    with seeded(task.seed):
        ratio = step_ratio(tested, copy.copy(task.graph).to(task.device))

    def retrain(label: str, graph: PerturbedGraph) -> nn.Module:
        on_it = replace(train, datamodule=train.datamodule.poisoned(graph.x, graph.edge_index))
        name = f"victim on {label}"
        retrained = on_it(name, recipe, description=name)
        seconds[name] = retrained.seconds
        return retrained.model.to(task.device)

    knows, shows = threat.labels == "true", recipe.fit.progress_bar
    measured = evaluate_on(
        Attacker(task, budget, train.store, knows_labels=knows, shows_progress=shows),
        tested,
        runs,
        own_flags=list(step_flags(ratio)),
        retrain=retrain if task.poisons else None,
    )
    seconds |= {run.label: measured.outcomes[run.label].effort["seconds"] for run in runs}
    for curves in [logger] if isinstance(logger, Logger) else logger or []:
        curves.log_metrics({f"accuracy/{k}": v for k, v in measured.accuracy.items()}, step=0)
        curves.save()
    result = RunResult(
        **_of_attacks(attacks, runs, measured, victim),
        val_accuracy=victim.val_accuracy,
        epochs=victim.epochs,
        best_epoch=victim.best_epoch,
        nfe=evaluations.total,
        step_ratio=ratio,
        seconds=seconds | {"test": measured.seconds},
        split=train.datamodule.split_hash,
        split_drawn=train.datamodule.split_drawn,
        declared=budget.bounds,
        backend=current_backend(task.device.type),
        processor=processor(task.device),
    )
    _log_end(description, result, victim)
    return result


def _log_end(description: str, result: RunResult, victim: TrainedModel) -> None:
    lowest = [f"{name} {100 * share:.2f} %" for name, share in result.accuracy.items()]
    best = f" (best {victim.best_epoch})" if victim.best_epoch else ""
    trained = f"{victim.epochs} epochs{best}, val {100 * victim.val_accuracy:.1f} %"
    end = {"end": f"trained before, {trained}" if victim.reused else trained}
    log.info("%s: accuracy %s", description, ", ".join(lowest), extra=end)


def _of_attacks(
    attacks: Mapping[str, Attack],
    runs: Sequence[AttackRun],
    measured: Evaluation,
    victim: TrainedModel,
) -> dict[str, Any]:
    """Return the fields of a result that hold a value for each attack."""
    rows: dict[str, list[float]] = {"clean": [measured.accuracy["clean"]]}
    attacked: dict[str, dict[str, float]] = {}
    spent: dict[str, dict[str, Any]] = {}
    for run in runs:
        outcome, on = measured.outcomes[run.label], run.made_on or "victim"
        rows.setdefault(run.row, []).append(measured.accuracy[run.label])
        attacked.setdefault(on, {"clean": outcome.clean_accuracy})[run.row] = outcome.accuracy
        spent.setdefault(run.row, {})[on] = asdict(outcome.spent)
    same = {run.made_on for run in runs if run.made_on and run.state == victim.state}
    for name in sorted(same):
        log.warning("surrogate %s: has the victim's weights, a white box", name)
    outcomes, flags = measured.outcomes, measured.flags
    parts = {label: dict(made.graph.part_accuracy) for label, made in outcomes.items()}
    on_surrogates = {run.label: outcomes[run.label].flags for run in runs if run.made_on}
    unbounded = {name: attack.unbounded for name, attack in attacks.items() if attack.unbounded}
    return {
        "accuracy": {name: min(shares) for name, shares in rows.items()},
        "mean_accuracy": {name: sum(shares) / len(shares) for name, shares in rows.items()},
        "attacked": attacked,
        "parts": {label: by_part for label, by_part in parts.items() if by_part},
        "forwards": {label: made.effort["forwards"] for label, made in outcomes.items()},
        "spent": spent,
        "attack_versions": {name: attack.version for name, attack in attacks.items()},
        "unbounded": {
            k: {str(limit): why for limit, why in limits.items()} for k, limits in unbounded.items()
        },
        "flags": {name: [flag.code for flag in signs] for name, signs in flags.items()},
        "warnings": {name: [flag.detail for flag in signs] for name, signs in flags.items()},
        "surrogate_flags": {k: [flag.code for flag in signs] for k, signs in on_surrogates.items()},
        "same_weights": [name for name in attacked if name in same],
        "reused": ["victim"] * victim.reused + [k for k, made in outcomes.items() if made.reused],
        "files": {"victim": victim.path.name} | {k: made.file for k, made in outcomes.items()},
    }


def _checked_task(
    train: ModelTraining, recipe: Recipe, threat: ThreatModel, attacks: Mapping[str, Attack]
) -> Task:
    """Return the task of the run, raising errors before hours of training."""
    check_value("seed", train.seed, Seed)
    for name in attacks:
        check_name("attacks", name, OWN_NAMES | {"train", "test"})  # names of phases in `seconds`
    injections = [name for name, attack in attacks.items() if attack.kind == "injection"]
    poisons = isinstance(threat, Poisoning)
    if poisons and injections:
        raise ConfigError(
            f"attack={injections[0]}: injects nodes; threat=poisoning takes an attack that changes "
            "the graph in place, such as metattack"
        )
    datamodule, untrained = train.datamodule, train.untrained(recipe.build).eval()
    threat.check(untrained)
    if not has_own_layers(untrained):  # models of the package are covered by tests
        _check_custom(untrained, datamodule, grows=bool(injections))
    warn_of_steps(untrained, datamodule.view("val"))
    graph, targets = datamodule.graph, datamodule.target_nodes
    device = recipe.fit.trainer().strategy.root_device
    return Task(graph, targets, device, seed=train.seed, poisons=poisons)


def _check_custom(model: nn.Module, datamodule: GraphDataModule, *, grows: bool) -> None:
    """Reject a custom model that would make accuracies meaningless."""
    clean = datamodule.view("test")
    tried = check_model(model, clean.x, clean.edge_index, datamodule.num_classes, grows=grows)
    if tried.writes_in_place:
        raise writes_into_inputs(model)
    if tried.gives_probabilities:
        raise ConfigError(f"model: {type(model).__name__} returns probabilities; return logits")


def _runs(
    threat: ThreatModel,
    attacks: Mapping[str, Attack],
    cache_key: Config,
    victim: TrainedModel,
    train: ModelTraining,
    seconds: dict[str, float],
) -> list[AttackRun]:
    """Return every attack on every attacked model; adds the times of trainings to `seconds`."""
    surrogates = cache_key["threat"].get("surrogates", {})

    def train_surrogate(
        name: str, build: Callable[..., nn.Module], fit: Fit, seeding: Seeding
    ) -> TrainedModel:
        key = {"model": surrogates[name], "fit": cache_key["threat"]["fit"]}
        kind = f"surrogate-{name}"
        trained_by = train.named(kind) if seeding == "name" else train
        surrogate = trained_by(kind, Recipe(build, fit, key), description=f"surrogate {name}")
        seconds[f"surrogate {name}"] = surrogate.seconds
        return surrogate

    models = threat.attacked_models(victim, train_surrogate)
    through = {key: cache_key["threat"].get(key) for key in ("adjoint", "gradient")}
    return runs_on(
        {"" if on == "victim" else on: (seen.model, seen.state) for on, seen in models.items()},
        attacks,
        lambda name, on: {
            "attack": cache_key["attacks"][name],
            "model": surrogates.get(on, cache_key["model"]),
            "through": through,
        },
        by_attack=True,
    )
