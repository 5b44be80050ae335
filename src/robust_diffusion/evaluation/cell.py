"""One cell of an experiment: train one model, test it clean and under every attack."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, InjectionBudget
from robust_diffusion.checks import check_whole
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.threat import ThreatModel
from robust_diffusion.solver import count_evaluations
from robust_diffusion.training import Fit, ctrl_c_passes, quiet_lightning

log = logging.getLogger(__name__)

LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class CellResult:
    """What one cell measured.

    Args:
        accuracy: Share of the target nodes classified right, per test graph, in 0..1.
        surrogate_accuracy: The same for the model that was attacked.
        val_accuracy: Best validation accuracy, in 0..1.
        epochs: Epochs trained.
        nfe: Right-hand-side evaluations in one forward pass on the clean test graph.
        seconds: Wall time of each phase.
        declared: What each attack was allowed to spend, feature limits resolved.
        spent: Per attack, what it used of its budget.
        split: Hash of the split.
    """

    accuracy: dict[str, float]
    surrogate_accuracy: dict[str, float]
    val_accuracy: float
    epochs: int
    nfe: int
    seconds: dict[str, float]
    split: str
    declared: dict[str, Any]
    spent: dict[str, dict[str, Any]] = field(default_factory=dict)


def evaluate_cell(
    *,
    datamodule: GraphDataModule,
    model: Callable[..., nn.Module],
    fit: Fit,
    threat: ThreatModel,
    attacks: Mapping[str, Attack],
    budget: InjectionBudget,
    seed: int,
    directory: Path,
    logger: Logger | bool = False,
    callbacks: Sequence[pl.Callback] = (),
    description: str = "victim",
) -> CellResult:
    """Train a victim, attack as the threat model says, and test on all graphs.

    Evasion: the victim is trained on the clean graph and never sees an attacked one before the
    test. The random state is set anew from `seed` for the victim, for the attacked model and for
    each attack, so that all victims of one seed face the same attacked graphs.

    Args:
        datamodule: The graph; the attacked test graphs are added to it.
        model: Builds the victim from the numbers of features and classes.
        fit: Trains the victim.
        threat: Says which model the attacks run on.
        attacks: By the name under which their test graph is scored.
        budget: What every attack may spend.
        seed: In 0..2^32 - 1.
        directory: Where checkpoints go, in `victim/` and `attacked/`.
        logger: Lightning logger of the victim's curves and test accuracies.
        callbacks: Further Lightning callbacks of the victim's training.
        description: Names the victim in progress bar and log.

    Returns:
        Accuracies, counts and times.

    Raises:
        ConfigError: The seed or the budget does not fit.
        TrainingError: A loss is not finite.
        AttackError: An attack's gradient is not finite.
    """
    if check_whole("seed", seed, at_least=0) > LARGEST_SEED:
        raise ConfigError(f"seed={seed}: must be at most {LARGEST_SEED}")
    targets = datamodule.target_nodes
    budget = budget.resolve(datamodule.graph.x)
    if attacks:
        # Before hours of training, not after.
        budget.check_targets(targets.numel())
    seconds: dict[str, float] = {}

    pl.seed_everything(seed, workers=True, verbose=False)
    victim = model(in_channels=datamodule.num_features, out_channels=datamodule.num_classes)
    fitted = fit(
        victim,
        datamodule,
        directory=directory / "victim",
        description=description,
        logger=logger,
        callbacks=callbacks,
    )
    seconds["train"] = fitted.seconds
    # Lightning brings a fitted model back to the CPU; attacks belong where the training ran.
    device = fitted.trainer.strategy.root_device

    surrogate_accuracy: dict[str, float] = {}
    spent: dict[str, dict[str, Any]] = {}
    if attacks:
        start = time.perf_counter()
        pl.seed_everything(seed, workers=True, verbose=False)
        attacked = threat.attacked_model(victim, datamodule, directory / "attacked").to(device)
        seconds["attacked_model"] = time.perf_counter() - start
        clean = _on(device, datamodule.graph)
        surrogate_accuracy["clean"] = _accuracy(attacked, datamodule.view("test"), device)
        for name, attack in attacks.items():
            start = time.perf_counter()
            generator = torch.Generator().manual_seed(seed)
            perturbed = attack(attacked, clean, targets.to(device), budget, generator)
            datamodule.add_test_graph(name, perturbed.x.cpu(), perturbed.edge_index.cpu())
            seconds[name] = time.perf_counter() - start
            spent[name] = asdict(perturbed.spent)
            surrogate_accuracy[name] = _accuracy(attacked, datamodule.test_graph(name), device)
            log.info(
                "%s: accuracy of the attacked model %.2f %% -> %.2f %% in %.1f s",
                name,
                100 * surrogate_accuracy["clean"],
                100 * surrogate_accuracy[name],
                seconds[name],
            )

    start = time.perf_counter()
    with count_evaluations(victim) as evaluations:
        _accuracy(victim.to(device), datamodule.view("test"), device)
    fitted.module.test_names = datamodule.test_names
    with quiet_lightning(), ctrl_c_passes():
        results = fitted.trainer.test(fitted.module, datamodule, verbose=False)
    seconds["test"] = time.perf_counter() - start
    measured = {name: value for result in results for name, value in result.items()}
    return CellResult(
        accuracy={
            name: _exact(measured[f"test/{name}"], targets.numel())
            for name in datamodule.test_names
        },
        surrogate_accuracy=surrogate_accuracy,
        val_accuracy=_exact(fitted.val_accuracy, int(datamodule.view("val").mask.sum())),
        epochs=fitted.epochs,
        nfe=evaluations.total,
        seconds=seconds,
        split=datamodule.split_hash,
        declared=asdict(budget),
        spent=spent,
    )


def _exact(accuracy: float, num_nodes: int) -> float:
    # Lightning logs float32; a share of so many nodes is a fraction that can be told from it.
    return round(accuracy * num_nodes) / num_nodes


def _on(device: torch.device, graph: Data) -> Data:
    # Data.to moves a graph in place, and the datamodule's own stays where it is.
    return graph if device.type == "cpu" else graph.clone().to(device)


def _accuracy(model: nn.Module, graph: Data, device: torch.device) -> float:
    graph = _on(device, graph)
    assert isinstance(graph.y, Tensor)
    with torch.no_grad():
        correct = model(graph.x, graph.edge_index).argmax(1) == graph.y
    return float(correct[graph.mask].double().mean().item())
