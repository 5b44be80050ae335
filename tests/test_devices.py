"""What runs on a card, on a pretended one: no mixed devices; waits counted."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import OmegaConf
from pytorch_lightning.accelerators import CUDAAccelerator
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks.gradient_ascent import StepRule
from robust_diffusion.attacks.injection.base import draw_targets
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Climb, Injection
from robust_diffusion.certificates.base import Noise
from robust_diffusion.certificates.sampling import noisy_logits
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS, Solver
from robust_diffusion.models import GCN
from robust_diffusion.operators import Graph
from robust_diffusion.training import Fit, cuda_graphs
from tests.attacks import contract
from tests.card import CARD, card, strategy
from tests.certificates.test_sampling import SCHEMES
from tests.graphs import build_flow, clustered_edges, random_signal
from tests.models.test_contract import LABELS, NODES, Case, build, edge_index, every_case, x
from tests.training.test_cuda_graphs import MODELS, stand_in

__all__ = ["edge_index", "x"]
pytestmark = pytest.mark.devices

METHODS = sorted(FIXED_STEP_METHODS | ADAPTIVE_METHODS)
A_STEP = {"gradient_injection": 2, "grbcd": 22, "prbcd": 44, "lrbcd": 56}
A_STEP["meta_grbcd"] = 90  # a training in each
"""Most waits of a step of an attack, where there are any: most of RBCD's are PyG's."""


def own(waits: Counter[str]) -> int:
    libraries = ("lightning", "pytorch_lightning", "torch_geometric", "torchdiffeq", "torchmetrics")
    return sum(n for place, n in waits.items() if not place.startswith(libraries))


def test_devices_are_not_mixed_and_waits_are_counted() -> None:
    with card() as waits:
        there = torch.ones(2, device=CARD) * 3
        assert not waits
        with pytest.raises(RuntimeError, match="must be on one device"):
            there + torch.ones(2)
        assert there.sum().item() == 6
        assert own(waits) == waits.total() == 1


@every_case
def test_a_model_trains_without_waiting(case: Case, x: Tensor, edge_index: Tensor) -> None:
    model = build(case).train()
    with card() as waits:
        model = model.to(CARD)
        given, labels = (x.to(CARD), edge_index.to(CARD)), LABELS.to(CARD)
        for _ in range(2):  # the first looks at the graph
            waits.clear()
            F.cross_entropy(model(*given), labels).backward()
        assert not waits
        model.eval()(*given)
        waits.clear()
        logits = model(*given)
        assert not waits
        logits, model = logits.cpu(), model.cpu()
    torch.testing.assert_close(logits, model(x, edge_index))


@pytest.mark.filterwarnings("ignore:Functional iteration did not converge")
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_an_own_loop_never_waits(method: Any, adjoint: bool) -> None:
    flow, z = build_flow(Beltrami), random_signal(nodes=NODES)
    loose = {"rtol": 0.01, "atol": 0.01} if method in ADAPTIVE_METHODS else {}
    solver = Solver(method, adjoint=adjoint, **loose)
    with card() as waits:
        flow.to(CARD)
        graph = Graph.from_edge_index(clustered_edges().to(CARD), num_nodes=NODES, dtype=z.dtype)
        start = z.to(CARD).requires_grad_()
        for _ in range(2):
            waits.clear()
            end = solver.solve(flow, start, graph)
            end.sum().backward()
        if solver.own_loop:
            assert not waits
        end = end.detach().cpu()
        flow.cpu()
    graph = Graph.from_edge_index(clustered_edges(), num_nodes=NODES, dtype=z.dtype)
    torch.testing.assert_close(end, solver.solve(flow, z, graph).detach())


ATTACKS = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "auto_modification" else [])
    for name in contract.NAMES
]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_as_on_the_cpu_and_seldom_waits(name: str) -> None:
    graph, counts, budget = contract.graph(), [], replace(contract.BUDGET, edge_ratio=0.05)
    by_steps = "num_steps" in contract.options(name)
    # Of the ensembles, whose parts are tried by themselves, one step of each.
    for num_steps in (1,) if name.startswith("auto") else (2, 4) if by_steps else (None,):
        attack = contract.make(name, **({"num_steps": num_steps} if num_steps else {}))
        with card() as waits:
            model = deepcopy(contract.trained()).to(CARD)
            data = Data(x=graph.x.to(CARD), edge_index=graph.edge_index.to(CARD))
            targets = graph.index_test.to(CARD)
            waits.clear()
            found = contract.run(attack, model=model, data=data, targets=targets, budget=budget)
            counts.append(waits.total())
            x, edge_index = found.x.cpu(), found.edge_index.cpu()
    assert counts[-1] - counts[0] <= 2 * A_STEP.get(name, 0)
    expected = contract.run(attack, budget=budget)
    assert torch.equal(edge_index, expected.edge_index)
    torch.testing.assert_close(x, expected.x, rtol=0, atol=1e-3)


def test_rounds_of_moves_wait_once_for_each_pass() -> None:
    graph, budget, generator = contract.graph(), contract.BUDGET, torch.Generator().manual_seed(0)
    with card() as waits:
        data = Data(x=graph.x.to(CARD), edge_index=graph.edge_index.to(CARD))
        model, targets = deepcopy(contract.trained()).to(CARD), graph.index_test.to(CARD)
        victim, task = contract.victim_and_task(model, data, targets)
        rows = draw_targets(task.targets, budget.injected_degrees, generator)
        placement = Placement.of(task, rows, budget.injected_degrees, 0)
        bound = "", victim, victim, task, budget, 24, generator
        climb = Climb(*bound, "equal", StepRule(), share=1 / 12, moves=len(AUTO.moves))
        with victim:
            for _ in range(2):  # the first looks at the graph
                waits.clear()
                before = victim.forwards
                climb.improve(Injection.at(task, placement, task.x[: len(rows)]))
        waited = Counter({place: n for place, n in waits.items() if "non_blocking" not in place})
    assert 0 < waited.total() <= victim.forwards - before, waited


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_a_draw_is_as_on_the_cpu(scheme: Any) -> None:
    graph, noise = contract.graph(), Noise(0, "votes")
    draw = partial(noisy_logits, scheme=scheme, noise=noise, draws=[0, 1])
    with card() as waits, torch.no_grad():
        given = deepcopy(contract.trained()).to(CARD), graph.x.to(CARD), graph.edge_index.to(CARD)
        waits.clear()
        logits = draw(*given)
        assert waits.total() == 5, waits  # to draw on the CPU, and for a new graph's loops
        logits = logits.cpu()
    torch.testing.assert_close(logits, draw(contract.trained(), graph.x, graph.edge_index))


def on_the_card(**options: Any) -> pl.Trainer:
    return pl.Trainer(**options | {"accelerator": "auto", "strategy": strategy()})


def test_an_epoch_waits_twice(make_datamodule: Callable[..., Any], tmp_path: Path) -> None:
    def fit(max_epochs: int, build: Callable[..., pl.Trainer], **options: Any) -> float:
        torch.manual_seed(0)
        trainer = partial(build, enable_model_summary=False, num_sanity_val_steps=0, **options)
        trained = Fit(trainer, max_epochs=max_epochs, progress_bar=False)
        return trained(
            GCN(16, 8, out_channels=7), make_datamodule(), directory=tmp_path
        ).val_accuracy

    counts = []
    for epochs in (2, 6):
        with card() as waits:
            accuracy = fit(epochs, on_the_card)
            counts.append(waits.copy())
    more = counts[1] - counts[0]
    # For loss and accuracy of its step, and of its validation; Lightning reads them on the host.
    assert more.total() == 2 * 4, more
    assert accuracy == fit(6, pl.Trainer, accelerator="cpu")


@pytest.mark.parametrize("name", MODELS)
def test_recorded_epochs_wait_once_per_read(
    name: str, make_datamodule: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs, "DEVICE", CARD)
    monkeypatch.setattr(cuda_graphs, "record", stand_in)
    monkeypatch.setattr(cuda_graphs, "AHEAD", 4)
    trainer = partial(on_the_card, enable_model_summary=False, num_sanity_val_steps=0)
    counts = []
    for epochs in (5, 9):
        with card() as waits:
            Fit(trainer, max_epochs=epochs, progress_bar=False)(MODELS[name](), make_datamodule())
            counts.append(waits.copy())
    more = counts[1] - counts[0]
    assert more.total() == 1, more


def test_an_epoch_of_triton_launches_fewer_than_500_kernels() -> None:
    pytest.importorskip("triton")
    script = Path(__file__).parents[1] / "benchmarks" / "launches.py"
    printed = subprocess.check_output([sys.executable, script], text=True).splitlines()
    counts = {line.split()[0]: int(line.split()[1]) for line in printed}
    assert 0 < counts["triton"] < 500 < counts["torch"]


RUNS = ["", "fidelity=released", "adversary=injection"]
CLUSTERS = "batching=clusters batching.num_parts=4 batching.parts_per_batch=2"
POISONING = "threat=poisoning attack=metattack attacks.metattack.num_epochs=3 model=gcn"


@pytest.mark.slow
@pytest.mark.parametrize("options", [*RUNS, CLUSTERS, POISONING])
def test_a_run_on_the_card(cli: Callable[..., Any], tiny: list[str], options: str) -> None:
    unread = ("attacks.", "budget.max_") if "attack=" in options else ()
    given = [option for option in tiny if not option.startswith(unread)]
    trainer = f"trainer._target_={on_the_card.__module__}.{on_the_card.__name__}"
    with card() as waits:
        outcome = cli(*options.split(), *given, trainer)
    assert outcome.status == 0, outcome.err
    assert outcome.records[0].backend == "torch"
    assert waits


@pytest.mark.parametrize(
    "case",
    [
        ("cores", "gpus_per_run", "joblib", 1),
        ("local", "+gpus_per_node", "submitit", 1),
        ("slurm", "gpus_per_node", "submitit", 4),
        ("ray", "ray.remote.num_gpus", "ray", 4),
    ],
)
def test_a_trainer_of_one_card_and_a_launcher_of_several_are_built(
    compose: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str, int]
) -> None:
    preset, option, module, cards = case
    pytest.importorskip(module)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: cards)
    prefix, key = option.startswith("+") * "+", option.removeprefix("+")
    launcher = [f"hydra/launcher={preset}", f"{prefix}hydra.launcher.{key}={cards}", "threads=1"]
    cfg = compose("trainer=gpu", *launcher)
    trainer = instantiate(cfg.trainer)(max_epochs=1, logger=False)
    assert isinstance(trainer.accelerator, CUDAAccelerator)
    built = HydraConfig.get().launcher
    assert OmegaConf.select(built, key) == cards
    instantiate(built)
