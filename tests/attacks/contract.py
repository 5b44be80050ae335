"""Every attack under conf/attack and in the tutorials, with few steps; a new one is found."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph
from robust_diffusion.attacks.audit import Violation, audit
from robust_diffusion.attacks.task import Task
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.models import GCN
from robust_diffusion.models.victim import Victim
from tests import tutorials
from tests.attacks.graphs import small_graph, trained_gcn
from tests.configs import composed

FOLDERS = (Path(CONFIG_DIR, "attack"), tutorials.CONFIG_DIR / "attack")
FILES = {path.stem: path for folder in FOLDERS for path in folder.glob("*.yaml")}
NAMES = sorted(FILES.keys() - {"none", "given"})  # the latter reads what others have done
FEW = {"num_steps": 10, "num_rounds": 1, "num_edge_steps": 5, "block_size": 3000, "num_epochs": 5}
FEWER = {"auto": {"num_steps": 2}, "auto_modification": {"num_steps": 2}}  # of many parts


def attack_class(name: str) -> type[Attack]:
    return get_class(OmegaConf.load(FILES[name])[name]["_target_"])


def names(kind: str = "", need: str = "") -> list[str]:
    """The attacks of a kind, of those that need something of the model."""
    found = [(name, attack_class(name)) for name in NAMES]
    return [
        name
        for name, cls in found
        if cls.kind == (kind or cls.kind) and (not need or need in cls.needs)
    ]


def options(name: str, fidelity: str = "paper") -> Any:
    cfg = composed(f"attack=[{name}]", f"fidelity={fidelity}", tutorials.SEARCHED)
    assert list(cfg.attacks) == [name]
    return cfg.attacks[name]


def make(name: str, fidelity: str = "paper", **changes: Any) -> Attack:
    """The attack with few steps: enough for everything but harm."""
    cfg = options(name, fidelity)
    few = FEW | FEWER.get(name, {})
    return instantiate(cfg, **{key: n for key, n in few.items() if key in cfg} | changes)


@cache
def graph() -> Data:
    """The graph under attack; nobody may change it."""
    return small_graph()


@cache
def trained() -> GCN:
    """A GCN that was trained on it; nobody may change it, either."""
    return trained_gcn(graph())


def clean(graph: Data) -> Data:
    """What the attacker gets."""
    return Data(x=graph.x, edge_index=graph.edge_index)


BUDGET = Budget(6, 10, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0.3)


def victim_and_task(
    model: Any = None, data: Data | None = None, targets: Tensor | None = None
) -> tuple[Victim, Task]:
    """The GCN, a function or a victim, and what its attacker knows.

    These are the classes of the graph, or those that the model, which is not probed, predicts.
    """
    data = clean(graph()) if data is None else data
    model = trained() if model is None else model
    victim = model if isinstance(model, Victim) else Victim(model, data.x, data.edge_index)
    labels = victim.clean_logits.argmax(1) if data.y is None else data.y
    return victim, Task(data, graph().index_test if targets is None else targets, labels)


def right(perturbed: PerturbedGraph, model: Any = None) -> int:
    """Number of test nodes that the GCN, or another model, still classifies as before."""
    victim, task = victim_and_task(model)
    with torch.no_grad():
        return task.right(victim(perturbed.x, perturbed.edge_index))


def run(
    attack: Attack,
    *,
    model: Any = None,
    data: Data | None = None,
    targets: Tensor | None = None,
    budget: Budget = BUDGET,
    seed: int = 0,
) -> PerturbedGraph:
    """The attack on the GCN at the test nodes, unless said otherwise."""
    victim, task = victim_and_task(model, data, targets)
    return attack(victim, task, budget, torch.Generator().manual_seed(seed))


def same(a: PerturbedGraph, b: PerturbedGraph) -> bool:
    return torch.equal(a.x, b.x) and torch.equal(a.edge_index, b.edge_index)


def broken(
    attack: Attack, perturbed: PerturbedGraph, budget: Budget, targets: Tensor | None = None
) -> list[Violation]:
    """Rules that a graph breaks by the auditor, which is tested by itself."""
    targets = graph().index_test if targets is None else targets
    limits = budget.resolve(graph().x).bounds
    return audit(graph(), perturbed, kind=attack.kind, target_nodes=targets, **limits)


def state(model: torch.nn.Module) -> Any:
    """All that an attack could change about a model."""
    return copy.deepcopy(
        (
            [module.training for module in model.modules()],
            [(parameter.requires_grad, parameter.grad) for parameter in model.parameters()],
            {key: value.tolist() for key, value in model.state_dict().items()},
        )
    )


def random_states() -> tuple[Any, ...]:
    """The state of the global random generators, except Python's, which beartype itself uses."""
    numbers = np.random.get_state()  # noqa: NPY002
    return (torch.get_rng_state().tolist(), numbers[1].tolist(), numbers[2])
