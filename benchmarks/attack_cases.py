"""Benchmark cases of attacks, for `cases.py`."""

from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from measure import by_turns, summary
from networks import ONE_STEP, epoch_of, load, network

from robust_diffusion.attacks import SPEIT, AutoInjection, Budget, GradientInjection, Task
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN
from robust_diffusion.models.victim import Victim
from robust_diffusion.operators import set_backend

BACKENDS = ("torch", "compiled")
TWO_STEPS = Solver("implicit_adams", num_steps=2)
BUDGET = Budget(50, 50, (-0.94, 0.94))
"""The paper's budget on Cora."""
EPOCHS = 150
"""Enough training for an attack to have accuracy to reduce."""


def white_box(repeat: int) -> dict[str, Any]:
    """Measure white-box SPEIT through Beltrami on Cora, 100 steps, 50 nodes x 50 edges."""
    datamodule = load("cora")
    graph, targets = datamodule.graph, datamodule.target_nodes
    truth = Task(graph, targets, graph.y)
    attack = SPEIT(num_steps=100)

    def run(model: torch.nn.Module, backend: str) -> None:
        set_backend(backend)
        victim = Victim(model, graph.x, graph.edge_index)
        task = truth.attacker_view(victim, "predictions")
        attack(victim, task, BUDGET, torch.Generator().manual_seed(0))

    small = network(datamodule, ONE_STEP).eval()
    large = network(datamodule, TWO_STEPS, hidden_channels=128, num_layers=4).eval()
    models = {"3 x 64, one step": small, "4 x 128, two steps": large}
    runs = {
        f"{name}, {backend}": partial(run, model, backend)
        for name, model in models.items()
        for backend in BACKENDS
    }
    seconds = by_turns(runs, repeat=max(1, repeat // 7), warm_up=0)
    return {name: summary(values) for name, values in seconds.items()}


def auto(repeat: int) -> dict[str, Any]:
    """Measure white-box `auto` and one of its gradient ascents on a trained Beltrami, on Cora."""
    datamodule = load("cora")
    set_backend("auto")
    model = network(datamodule, TWO_STEPS, hidden_channels=128, num_layers=4)
    epoch = epoch_of(model, datamodule.view("train"), datamodule.view("val"))
    for _ in range(EPOCHS):
        epoch()
    graph, targets = datamodule.graph, datamodule.target_nodes
    truth = Task(graph, targets, graph.y)
    attacks = {"auto": AutoInjection(), "gradient_injection": GradientInjection()}
    accuracy: dict[str, float] = {}

    def run(name: str) -> None:
        generator = torch.Generator().manual_seed(0)
        victim = Victim(model, graph.x, graph.edge_index)
        task = truth.attacker_view(victim, "labels")
        attacked = attacks[name](victim, task, BUDGET, generator)
        accuracy[name] = truth.accuracy(victim.predict(attacked))

    runs = {name: partial(run, name) for name in attacks}
    seconds = by_turns(runs, repeat=max(1, repeat // 5), warm_up=0)
    return {
        name: summary(values) | {"accuracy": accuracy[name]} for name, values in seconds.items()
    }


def rows(repeat: int) -> dict[str, Any]:
    """Measure SPEIT on Coauthor, 20 steps: fixed rows separate, or concatenated in each step."""
    datamodule = load("coauthor")
    graph, targets = datamodule.graph, datamodule.target_nodes
    truth = Task(graph, targets, graph.y)
    budget, attack = Budget(100, 200, (-0.04, 1.0)), SPEIT(num_steps=20)
    torch.manual_seed(0)
    model = GCN(datamodule.num_features, 64, out_channels=datamodule.num_classes).eval()

    def run() -> None:
        victim = Victim(model, graph.x, graph.edge_index)
        task = truth.attacker_view(victim, "predictions")
        attack(victim, task, budget, torch.Generator().manual_seed(0))

    def put_together() -> None:
        with patch.object(GCN, "takes_features", new=False):
            run()

    runs = {"apart": run, "together": put_together}
    seconds = by_turns(runs, repeat=max(1, repeat // 5), warm_up=1)
    return {name: summary(values) for name, values in seconds.items()}
