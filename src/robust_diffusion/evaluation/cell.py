"""One cell of an experiment: train one model, test it clean and under every attack."""

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, seeded
from robust_diffusion.checks import check_name, check_whole
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.curvature import curvature_of
from robust_diffusion.evaluation.flags import Flag
from robust_diffusion.evaluation.perturbed import Attacker
from robust_diffusion.evaluation.provenance import processor
from robust_diffusion.evaluation.solves import solves_of, tell_of_steps
from robust_diffusion.evaluation.subject import Task
from robust_diffusion.evaluation.threat import Seeding, ThreatModel
from robust_diffusion.evaluation.trained import ModelTraining, TrainedModel
from robust_diffusion.evaluation.victim_flags import with_victim_flags
from robust_diffusion.integrators import count_evaluations
from robust_diffusion.models.checked import check_model, is_of_this_package
from robust_diffusion.operators import current_backend
from robust_diffusion.store import ArtifactStore
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)

LARGEST_SEED = 2**32 - 1

Config = Mapping[str, Any]


@dataclass(frozen=True)
class CellResult:
    """The results of one cell."""

    accuracy: dict[str, float]  # per test graph, in 0..1; of several surrogates, the worst
    mean_accuracy: dict[str, float]  # the same; of several surrogates, the mean
    attacked: dict[str, dict[str, float]]  # per attacked model, on the graphs made on it
    parts: dict[str, dict[str, float]]  # per attack of several parts, each part's `attacked`
    val_accuracy: float  # best validation accuracy, in 0..1
    epochs: int  # epochs trained
    nfe: int  # right-hand-side evaluations in one forward pass on the clean test graph
    solves: dict[str, float | None]  # growth and stability; see `evaluation.solves`
    curvature: dict[str, Any]  # what its curvature term does; see `evaluation.curvature`
    seconds: dict[str, float]  # wall time of each phase, whenever it ran
    split: str  # hash of the split
    split_drawn: bool  # by degree; false of a split that came with the graph
    declared: dict[str, Any]  # budget of each attack, feature limits resolved
    spent: dict[str, dict[str, Any]]  # per attack and attacked model, what it used of its budget
    unbounded: dict[str, dict[str, str]]  # limits that an attack does not keep -> why
    flags: dict[str, list[str]]  # per attack and of the `victim`, codes; see `evaluation.flags`
    warnings: dict[str, list[str]]  # the same in lines
    same_weights: list[str]  # surrogates that are the victim, weight for weight: a white box
    reused: list[str]  # what was taken from the store instead of computed
    files: dict[str, str]  # entries of the store: the victim, and each perturbed graph
    backend: str  # of the operators, on the device where the cell ran
    processor: str  # of this run; what is `reused` may be of another


def evaluate_cell(
    *,
    datamodule: GraphDataModule,
    model: Callable[..., nn.Module],
    fit: Fit,
    threat: ThreatModel,
    attacks: Mapping[str, Attack],
    budget: Budget,
    seed: int,
    directory: Path,
    store: ArtifactStore,
    cache_key: Config,
    logger: Logger | Sequence[Logger] | bool = False,
    callbacks: Sequence[pl.Callback] = (),
    description: str = "victim",
) -> CellResult:
    """Train a victim, attack as the threat model says, and test on all graphs.

    Evasion: the victim is trained on the clean graph and never sees an attacked one before the
    test. The random state is set anew from `seed` for each model, each attack and the test, so that
    all victims of one seed face the same attacked graphs, computed once and shared through the
    store, and a cell that finds them there has the same result.

    Args:
        datamodule: The graph; the attacked test graphs are added to it.
        model: Builds the victim from the numbers of features and classes.
        fit: Trains the victim.
        threat: Says which models the attacks run on.
        attacks: By the name under which their test graph is scored.
        budget: What every attack may spend.
        seed: In 0..2^32 - 1.
        directory: Folder for the checkpoints of what is trained now.
        store: Keeps trained models and perturbed graphs.
        cache_key: The configuration that `model`, `training`, `threat`, `callbacks` and each of
            `attacks` was built from, under those names: it tells entries of the store apart.
        logger: Lightning logger of the victim's curves and test accuracies.
        callbacks: Further Lightning callbacks of the victim's training.
        description: Names the victim in progress bar and log.

    Raises:
        ConfigError: The seed, the budget, the threat or an attack's name does not fit.
        TrainingError: A loss is not finite.
        AttackError: An attack's gradient is not finite.
    """
    check_seed(seed)
    targets = datamodule.target_nodes
    budget = budget.resolve(datamodule.graph.x)
    for name, attack in attacks.items():
        check_name("attacks", name)
        # Before hours of training, not after.
        budget.check_targets(targets.numel(), attack.kind)
    train = ModelTraining(datamodule, store, seed, directory)
    untrained = train.untrained(model).eval()
    threat.check(untrained)
    _check_own(untrained, datamodule, grows=any(a.kind == "injection" for a in attacks.values()))
    tell_of_steps(untrained, datamodule.view("val"))
    # A callback may change the training, by averaging weights, say.
    further = {"callbacks": cache_key["callbacks"]} if cache_key.get("callbacks") else {}
    victim = train(
        "victim",
        model,
        fit,
        {"model": cache_key["model"], "fit": cache_key["training"], **further},
        description=description,
        logger=logger,
        callbacks=callbacks,
    )
    trainer = fit.trainer(logger=logger)
    device = trainer.strategy.root_device
    attacks_made = _attack(threat, attacks, cache_key, victim, train, budget, device)
    clean = copy.copy(datamodule.view("test")).to(device)
    nfe = _evaluations(victim, clean)
    with seeded(seed):
        solves = solves_of(victim.model, clean)
    curvature = curvature_of(victim.model.to(device), clean)
    start = time.perf_counter()
    with seeded(seed):  # a model may sample at test time
        tested = fit.test(victim.model, datamodule, trainer)
    seconds = {"test": time.perf_counter() - start}
    flags = with_victim_flags(
        attacks_made.flags,
        victim.model.to(device),
        Task(datamodule.graph, targets, device),
        {
            name: [datamodule.test_graph(graph) for graph in of]
            for name, of in attacks_made.graphs.items()
        },
        norm_growth=solves.get("norm_growth", 0.0),
        seed=seed,
    )
    exact = {name: _exact(value, targets.numel()) for name, value in tested.items()}
    members = {"clean": ["clean"], **attacks_made.graphs}
    return CellResult(
        accuracy={name: min(exact[graph] for graph in of) for name, of in members.items()},
        mean_accuracy={
            name: sum(exact[graph] for graph in of) / len(of) for name, of in members.items()
        },
        attacked=attacks_made.attacked,
        parts=attacks_made.parts,
        val_accuracy=_exact(victim.val_accuracy, int(datamodule.view("val").mask.sum())),
        epochs=victim.epochs,
        nfe=nfe,
        solves=solves,
        curvature=curvature,
        seconds={"train": victim.seconds} | attacks_made.seconds | seconds,
        split=datamodule.split_hash,
        split_drawn=datamodule.split_drawn,
        declared=asdict(budget),
        spent=attacks_made.spent,
        unbounded={
            name: {str(limit): reading for limit, reading in attack.unbounded.items()}
            for name, attack in attacks.items()
            if attack.unbounded
        },
        flags={name: [flag.code for flag in found] for name, found in flags.items()},
        warnings={name: [flag.detail for flag in found] for name, found in flags.items()},
        same_weights=attacks_made.same_weights,
        reused=(["victim"] if victim.reused else []) + attacks_made.reused,
        files={"victim": victim.path.name} | attacks_made.files,
        backend=current_backend(device.type),
        processor=processor(device),
    )


def check_seed(seed: int) -> int:
    """The seed, if it is a whole number in 0..2^32 - 1; else a `ConfigError`."""
    if check_whole("seed", seed, at_least=0) > LARGEST_SEED:
        raise ConfigError(f"seed={seed}: must be at most {LARGEST_SEED}")
    return seed


def _check_own(model: nn.Module, datamodule: GraphDataModule, *, grows: bool) -> None:
    """Refuse, before it is trained, a model of the user's that no accuracy could be told of."""
    if is_of_this_package(model):  # whose models are tested
        return
    clean = datamodule.view("test")
    tried = check_model(model, clean.x, clean.edge_index, datamodule.num_classes, grows=grows)
    name = type(model).__name__
    if tried.writes_in_place:
        raise ConfigError(
            f"model: {name} writes into the features or edges that it is handed; let its forward "
            "work on a copy"
        )
    if tried.gives_probabilities:
        raise ConfigError(f"model: {name} returns probabilities; return logits")


@dataclass(frozen=True)
class _AttacksMade:
    """The results of a cell's attacks, in fields as `CellResult` has them."""

    graphs: dict[str, list[str]] = field(default_factory=dict)  # names of each attack's test graphs
    attacked: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    spent: dict[str, dict[str, Any]] = field(default_factory=dict)
    flags: dict[str, list[Flag]] = field(default_factory=dict)
    same_weights: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


def _attack(
    threat: ThreatModel,
    attacks: Mapping[str, Attack],
    cache_key: Config,
    victim: TrainedModel,
    train: ModelTraining,
    budget: Budget,
    device: torch.device,
) -> _AttacksMade:
    """Run every attack on every attacked model, and add what they make to the test graphs."""
    made = _AttacksMade()
    if not attacks:
        return made
    shaped_threat = cache_key["threat"]

    def train_surrogate(
        name: str, build: Callable[..., nn.Module], fit: Fit, seeding: Seeding
    ) -> TrainedModel:
        shape = {"model": shaped_threat["surrogates"][name], "fit": shaped_threat["fit"]}
        kind = f"surrogate-{name}"
        trained_by = train.named(kind) if seeding == "name" else train
        surrogate = trained_by(kind, build, fit, shape, description=f"surrogate {name}")
        made.seconds[f"surrogate {name}"] = surrogate.seconds
        return surrogate

    attack_on = Attacker(
        task=Task(train.datamodule.graph, train.datamodule.target_nodes, device),
        budget=budget,
        seed=train.seed,
        store=train.store,
        knows_labels=threat.labels == "true",
    )
    models = threat.attacked_models(victim, train_surrogate)
    for model_name, attacked in models.items():
        if threat.name == "black_box" and attacked.state == victim.state:
            made.same_weights.append(model_name)
            log.warning("surrogate %s: has the victim's weights, a white box", model_name)
        own = made.attacked.setdefault(model_name, {"clean": attack_on.clean_accuracy(attacked)})
        shaped_model = shaped_threat.get("surrogates", {}).get(model_name, cache_key["model"])
        for name, attack in attacks.items():
            label = name if len(models) == 1 else f"{name}/{model_name}"
            shape = {
                "attack": cache_key["attacks"][name],
                "model": shaped_model,
                "through": {key: shaped_threat.get(key) for key in ("adjoint", "gradient")},
            }
            outcome = attack_on(label, attack, attacked, shape)
            train.datamodule.add_test_graph(label, outcome.graph.x, outcome.graph.edge_index)
            made.graphs.setdefault(name, []).append(label)
            own[name] = outcome.accuracy
            if outcome.graph.part_accuracy:
                made.parts[label] = dict(outcome.graph.part_accuracy)
            made.seconds[label] = outcome.seconds
            made.spent.setdefault(name, {})[model_name] = asdict(outcome.spent)
            made.files[label] = outcome.path.name
            if outcome.flags:
                made.flags.setdefault(name, []).extend(outcome.flags)
            if outcome.reused:
                made.reused.append(label)
            change = f"{100 * own['clean']:.2f} % -> {100 * own[name]:.2f} %"
            log.info("%s: accuracy of %s %s in %.1f s", name, model_name, change, outcome.seconds)
    return made


def _evaluations(victim: TrainedModel, graph: Data) -> int:
    assert graph.x is not None
    assert graph.edge_index is not None
    with torch.no_grad(), count_evaluations(victim.model) as evaluations:
        victim.model.to(graph.x.device)(graph.x, graph.edge_index)
    return evaluations.total


def _exact(accuracy: float, num_nodes: int) -> float:
    # Lightning logs float32; a share of so many nodes is a fraction that can be told from it.
    return round(accuracy * num_nodes) / num_nodes
