"""A setting that was typed changes the result, or is refused."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import evaluate
from robust_diffusion.evaluation.zoo import unit_test
from robust_diffusion.experiment.overrides import check_config
from robust_diffusion.flows import FLOWS
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE
from tests.attacks import contract
from tests.attacks.graphs import small_graph, trained_gcn
from tests.configs import composed
from tests.conftest import TINY_CLEAN, TINY_DATA
from tests.graphs import random_edges, random_signal

Compose = Callable[..., Any]
Cli = Callable[..., Any]

# The parts of an ensemble are attacks themselves, and an ensemble takes seconds.
ATTACKS = sorted(
    path.stem
    for path in CONFIG_DIR.glob("attack/*.yaml")
    if path.stem in contract.NAMES and "auto" not in path.stem
)
BASE = Budget(4, 5, (0.0, 1.0), node_ratio=0.4, edge_ratio=0.2, epsilon=0.1)
OTHER: dict[str, tuple[Any, ...]] = {
    "max_injected_nodes": (3,),
    "max_edges_per_injected_node": (4,),
    "max_injected_edges": (9,),
    "feature_limits": ((-1.0, 2.0), (0.25, 0.75)),
    "node_ratio": (0.2,),
    "edge_ratio": (0.1,),
    "epsilon": (0.01,),
    "features": ("frequencies",),
    "max_words": (1,),
    "scale_steps": (False,),
}
"""Another value, or several, of each limit of a budget."""

FEW = {"num_steps": 3, "block_size": 500, "num_epochs": 2, "num_edge_steps": 2, "num_rounds": 1}
FURTHER = [
    *(0.1, 0.5, 2, 100, True, False),
    *("margin", "masked", "zero", "equal", "sign", "strict", "grb", "train", "ball", "step"),
    *("exact", "detached", "original", "l1", "l21", [4, 4]),
]
"""Values of which at least one is another value of any option of an attack or a model."""


@cache
def frequencies() -> tuple[Data, GCN]:
    """A graph whose rows are frequencies of words, and a model of it."""
    graph = small_graph()
    graph.x = graph.x.clamp(min=0)
    graph.x = graph.x / graph.x.sum(1, keepdim=True).clamp(min=1e-6)
    return graph, trained_gcn(graph)


def attacked(name: str, budget: Budget = BASE, *, data: Data | None = None, **options: Any) -> Any:
    """What an attack with few steps makes of the graph; `None` if it refuses its options."""
    graph, model = frequencies()
    few = {key: value for key, value in FEW.items() if key in contract.options(name)}
    generator = torch.Generator().manual_seed(0)
    try:
        made = contract.make(name, **(few | options))
        attacked = contract.victim_and_task(model, data or graph, graph.index_test)
        found = made(*attacked, budget, generator)
    except (ConfigError, InstantiationException):  # a value out of range, or of another option
        return None
    return found.x, found.edge_index


def same(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return all(map(torch.equal, a, b))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_reads_a_limit_or_its_setting_is_refused(name: str) -> None:
    unread = contract.attack_class(name).unread({})
    for limit, values in OTHER.items():
        base = replace(BASE, features="frequencies") if limit == "max_words" else BASE
        others = (attacked(name, replace(base, **{limit: value})) for value in values)
        before = attacked(name, base)
        changes = any(not same(before, other) for other in others)
        assert changes == (f"budget.{limit}" not in unread), limit


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_reads_labels_or_their_setting_is_refused(name: str) -> None:
    graph, model = frequencies()
    predicted = model(graph.x, graph.edge_index).argmax(1)
    told = [
        Data(x=graph.x, edge_index=graph.edge_index, y=y) for y in (predicted, predicted.roll(1))
    ]
    results = [attacked(name, data=of) for of in told]
    read = "threat.attacker_knows" not in contract.attack_class(name).unread({})
    assert read == (not same(*results))


@pytest.mark.parametrize(
    ("name", "fidelity"),
    [*((n, "paper") for n in ATTACKS), *((n, "released") for n in ("tdgia", "pgd_modification"))],
)
def test_an_attack_reads_an_option_of_its_own_or_it_is_refused(name: str, fidelity: str) -> None:
    given = {k: v for k, v in contract.options(name, fidelity).items() if not k.startswith("_")}
    unread = contract.attack_class(name).unread(given)
    given |= {key: value for key, value in FEW.items() if key in given}
    before = attacked(name, **given)
    for key in given:
        others = (attacked(name, **(given | {key: value})) for value in FURTHER)
        changes = any(other is not None and not same(before, other) for other in others)
        assert changes == (key not in unread), key


SOLVERS: dict[str, tuple[Any, ...]] = {
    "method": ("euler", "rk4"),
    "num_steps": (3,),
}


@pytest.mark.parametrize("flow", sorted(FLOWS))
@pytest.mark.parametrize("key", SOLVERS)
def test_a_flow_reads_an_option_of_its_solver_or_it_is_refused(flow: str, key: str) -> None:
    def logits(**options: Any) -> Tensor:
        torch.manual_seed(0)
        solver = Solver(**({"method": "midpoint", "num_steps": 2} | options))
        model = GraphPDE(6, 8, out_channels=3, flow=flow, solver=solver, num_layers=2).eval()
        with torch.no_grad():
            return model(random_signal(0, 6).float(), random_edges(0, symmetric=True)[0])

    unread = FLOWS[flow].unread_of_solver({"order": FLOWS[flow](8).order})
    before, others = logits(), [logits(**{key: value}) for value in SOLVERS[key]]
    assert any(not torch.equal(before, other) for other in others) == (key not in unread)


MODELS = sorted(path.stem for path in CONFIG_DIR.glob("model/*.yaml") if path.stem != "graph_pde")
RARE = {"negative_degree", "rewiring"}  # a matrix without negative degrees; a part of its own


@pytest.mark.parametrize("name", MODELS)
def test_a_model_reads_each_of_its_options(name: str) -> None:
    given: Any = OmegaConf.to_container(
        composed(f"model={name}", "model.hidden_channels=8").model, resolve=True
    )
    graph = small_graph()

    def trained(**options: Any) -> Any:
        """Logits and their gradients after a step of training, or `None` if it is refused."""
        torch.manual_seed(0)
        try:
            model = instantiate(given | options)(in_channels=16, out_channels=7)
        except (ConfigError, InstantiationException):
            return None
        weight = torch.ones(graph.num_edges).requires_grad_()
        x = graph.x.clone().requires_grad_()
        for mode in (True, False):
            logits = model.train(mode)(x, graph.edge_index, weight)
            inputs = [x, weight, *model.parameters()]
            loss = torch.nn.functional.cross_entropy(logits, graph.y)
            slopes = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
            for parameter, slope in zip(model.parameters(), slopes[2:], strict=True):
                parameter.data -= slope
        return logits, *slopes

    before = trained()
    for key in given.keys() - RARE:
        if key.startswith("_") or isinstance(given[key], dict):  # of parts, tested above
            continue
        others = filter(None, (trained(**{key: value}) for value in FURTHER))
        shapes = [v.shape for v in before]
        assert any([v.shape for v in o] != shapes or not same(before, o) for o in others), key


def refusal(compose: Compose, *options: str) -> str:
    """The message by which a run refuses its options; "" if it takes them."""
    try:
        check_config(compose(*options))
    except ConfigError as error:
        return str(error)
    return ""


WITHOUT = {
    "attack=none": "budget.max_injected_nodes=3 threat=white_box threat.attacker_knows=labels"
    " surrogate=[gat] threat.fit.max_epochs=3 dataset.budget.max_injected_nodes=3"
    " fidelity.tdgia=grb",
    "attack=[speit]": "budget.edge_ratio=0.1",
    "attack=[prbcd]": "budget.max_injected_nodes=3",
    "attack=[auto]": "threat.attacker_knows=labels",
    "flow=dragon": "solver=rk4 solver.method=euler",
    "model=mlp": "flow=heat solver=rk4 fidelity.num_steps=1",
}
"""Settings that a run with another one does not read; each attack is tested above."""


@pytest.mark.parametrize("option", WITHOUT)
def test_a_run_refuses_what_it_does_not_read(compose: Compose, option: str) -> None:
    for typed in WITHOUT[option].split():
        message = refusal(compose, option, typed)
        assert message.startswith(f"{typed}: not read by "), typed
        assert "\n" not in message


@pytest.mark.parametrize(
    "taken",
    [
        ("attack=[speit]", "threat.attacker_knows=labels", "budget.max_injected_edges=9"),
        ("attack=[speit,prbcd]", "budget.edge_ratio=0.1", "budget.max_injected_nodes=3"),
        ("attack=[random,speit]", "threat.attacker_knows=labels"),
        ("attack=[pgd_modification]", "budget.epsilon=0.1", "budget.feature_limits=[0,1]"),
        ("attack=none", "adversary=injection", "budget.feature_limits=[0,1]"),
        ("attack=none", "timing=none", "certificate=none", "fidelity=released", "difficulty=hard"),
        ("attack=[speit]", "++budget.edge_ratio=0.1"),  # as a published run had it
        ("flow=frond", "solver.step_size=0.5"),
        ("flow=frond", "flow.order=1.0", "solver=rk4"),
        ("surrogate=[graph_pde]", "model=mlp", "solver=rk4", "fidelity.num_steps=1"),
    ],
    ids=" ".join,
)
def test_a_run_takes_what_one_of_its_parts_reads(compose: Compose, taken: tuple[str, ...]) -> None:
    assert not refusal(compose, *taken)


def test_a_sweep_refuses_what_none_of_its_runs_reads(cli: Cli) -> None:
    given = ["-m", "attack=none", *TINY_DATA, *TINY_CLEAN]
    error = cli("flow=frond,dragon", "solver=euler,rk4", *given).error
    assert re.search(r"solver=(euler|rk4): not read by flow=", error)
    outcome = cli("flow=frond,heat", "solver=euler", *given)
    assert (outcome.status, len(outcome.records)) == (0, 2)


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("evaluate --each=2", "attack=tdgia"),
        ("evaluate --each=2", "budget.max_injected_nodes=3"),
        ("evaluate --each=2", "threat.attacker_knows=labels"),
        ("evaluate model=own.Class", "solver=rk4"),
        ("evaluate model=own.Class", "fidelity=released"),
        ("evaluate model=gcn", "budget.edge_ratio=0.1"),
        ("certify model=gcn", "budget.edge_ratio=0.1"),
        ("certify model=gcn checkpoint=no.pt", "training.max_epochs=3"),
        ("certify model=gcn checkpoint=no.pt", "--clean-training"),
        ("certify --show=folder", "--clean-training"),
    ],
)
def test_a_command_refuses_what_it_does_not_read(cli: Cli, command: str, typed: str) -> None:
    name, *words = command.split()
    checkpoint = ["checkpoint=no.pt"] * (name == "evaluate")
    error = cli(name, *TINY_DATA * ("show" not in command), *words, *checkpoint, typed).error
    assert error.startswith(f"error: {typed}: ")


@pytest.mark.parametrize("option", ["--model=own.Class --weights=no.pt", "--zoo=folder"])
def test_audit_measures_accuracies_of_reports_alone(cli: Cli, option: str) -> None:
    outcome = cli("audit", "no_report", *option.split())
    assert outcome.status == 2
    assert f"error: {option.split('=')[0]}: " in outcome.err


@pytest.mark.parametrize("option", ["--save=", "--graphs="])
def test_an_empty_path_is_not_the_current_folder(cli: Cli, option: str) -> None:
    outcome = cli("evaluate", *TINY_DATA, "model=gcn", "checkpoint=no.pt", option)
    assert (outcome.status, "names no folder" in outcome.err) == (2, True)
    data, model = frequencies()
    options: Any = {"budget": BASE, "attacks": "random", "progress": False}
    with pytest.raises(ConfigError, match=r"^store='': "):
        evaluate(model, data, targets=data.index_test, store="", **options)
    with pytest.raises(ConfigError, match=r"^graphs='': "):
        unit_test(model, data, targets=data.index_test, graphs="")
