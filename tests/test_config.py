"""Every option of every config group composes and instantiates; new YAML files join by themselves.

`CONFIG_DIR` is looked up here, at collection, without importing the package itself.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch_geometric.data import Data

from tests.paper.records import finished

CONF = Path(__file__).parents[1] / "conf"
GROUPS = sorted(
    folder.name
    for folder in CONF.iterdir()
    if folder.is_dir() and folder.name not in ("hydra", "dataset_model_flow")
)
Compose = Callable[..., DictConfig]


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


INSTANTIATED = {
    "attack",
    "callbacks",
    "dataset",
    "experiment",
    "flow",
    "logger",
    "model",
    "solver",
    "surrogate",
    "threat",
    "trainer",
}
"""Groups with a test of their own, which resolves every option before it instantiates it."""


def every_other_option() -> list[tuple[str, str]]:
    return [(g, option) for g in GROUPS if g not in INSTANTIATED for option in options(g)]


def plain(cfg: DictConfig) -> dict[str, Any]:
    container = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(container, dict)
    return container  # type: ignore[return-value]


def resolved(compose: Compose, *overrides: str) -> DictConfig:
    """A configuration of which every key resolves."""
    cfg = compose(*overrides)
    assert plain(cfg)
    return cfg


def flat(node: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {path: node}
    return {k: v for key, child in node.items() for k, v in flat(child, f"{path}.{key}").items()}


def test_groups_are_found() -> None:
    assert {"fidelity", *INSTANTIATED} <= set(GROUPS)


@pytest.mark.parametrize(("group", "option"), every_other_option())
def test_every_option_composes(compose: Compose, group: str, option: str) -> None:
    resolved(compose, f"{group}={option}")


@pytest.mark.parametrize("option", options("flow"))
def test_flow_instantiates(compose: Compose, option: str) -> None:
    from robust_diffusion.flows import Flow

    flow = instantiate(resolved(compose, f"flow={option}").flow)(8)
    assert isinstance(flow, Flow)
    assert flow.channels == 8


@pytest.mark.parametrize("option", options("solver"))
def test_solver_instantiates(compose: Compose, option: str) -> None:
    assert instantiate(resolved(compose, f"solver={option}").solver).method == option


def test_every_method_of_the_solver_has_an_option() -> None:
    from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS

    assert set(options("solver")) == FIXED_STEP_METHODS | ADAPTIVE_METHODS


@pytest.mark.parametrize("option", options("dataset"))
def test_dataset_source_is_called_later(compose: Compose, option: str) -> None:
    cfg = resolved(compose, f"dataset={option}")
    datamodule = instantiate(cfg.data)
    assert callable(instantiate(cfg.dataset.source))
    assert datamodule.name == option
    assert instantiate(cfg.budget).max_injected_nodes == cfg.dataset.budget.max_injected_nodes


def test_synthetic_source_draws_a_graph(compose: Compose, tiny: list[str]) -> None:
    graph = instantiate(compose(*tiny).dataset.source)()
    assert isinstance(graph, Data)
    assert (graph.num_nodes, graph.num_features) == (200, 16)


@pytest.mark.real_data
def test_cora_source_reads_the_graph(compose: Compose) -> None:
    graph = instantiate(compose("dataset=cora").dataset.source)()
    assert graph.num_nodes == 2680


@pytest.mark.parametrize("option", options("attack"))
def test_attack_instantiates(compose: Compose, option: str) -> None:
    from robust_diffusion.attacks import Attack

    cfg = resolved(compose, f"attack={option}")
    attacks = {name: instantiate(node) for name, node in cfg.attacks.items()}
    assert list(attacks) == ([] if option == "none" else [option])
    assert all(isinstance(attack, Attack) for attack in attacks.values())


@pytest.mark.parametrize("option", options("trainer"))
def test_trainer_instantiates(compose: Compose, option: str) -> None:
    cfg = resolved(compose, f"trainer={option}")
    if option != "gpu":
        trainer = instantiate(cfg.trainer)(logger=False, max_epochs=1)
        assert isinstance(trainer, pl.Trainer)


@pytest.mark.parametrize("chosen", ["none", "csv", "tensorboard", "wandb", "[csv,tensorboard]"])
def test_loggers_instantiate(compose: Compose, chosen: str) -> None:
    loggers = resolved(compose, f"logger={chosen}").logger
    assert list(loggers) == [name for name in chosen.strip("[]").split(",") if name != "none"]
    for name, options in loggers.items():
        made = instantiate(options, _partial_=True)  # a run of W&B's is that of a cell
        logger = made(record=finished(cell="c311")) if name == "wandb" else made()
        assert isinstance(logger, pl.loggers.Logger)
        if name == "wandb":
            logger.experiment.finish()


@pytest.mark.parametrize("option", options("threat"))
def test_threat_instantiates(compose: Compose, option: str) -> None:
    assert instantiate(resolved(compose, f"threat={option}").threat).name == option


def test_every_model_can_be_a_surrogate() -> None:
    assert options("surrogate") == options("model")


@pytest.mark.parametrize("others", [[], ["gat"], ["graph_pde", "mlp"]])
def test_there_may_be_several_surrogates(compose: Compose, others: list[str]) -> None:
    cfg = compose(f"surrogate=[{','.join(['gcn', *others])}]")
    assert list(cfg.surrogates) == list(cfg.threat.surrogates) == ["gcn", *others]


@pytest.mark.parametrize("option", options("callbacks"))
def test_callbacks_instantiate(compose: Compose, option: str) -> None:
    for node in resolved(compose, f"callbacks={option}").callbacks.values():
        assert isinstance(instantiate(node), pl.Callback)


@pytest.mark.parametrize("option", options("experiment"))
def test_experiment_instantiates(compose: Compose, option: str) -> None:
    from robust_diffusion.training import Fit

    cfg = resolved(compose, f"experiment={option}")
    assert isinstance(instantiate(cfg.training), Fit)
    assert instantiate(cfg.model)(in_channels=4, out_channels=2) is not None


@pytest.mark.parametrize("option", options("fidelity"))
@pytest.mark.parametrize(
    "choice", ["model=beltrami_guard", *(f"flow={flow}" for flow in options("flow"))]
)
def test_fidelity_instantiates_with_every_flow(compose: Compose, option: str, choice: str) -> None:
    cfg = compose(f"fidelity={option}", choice)
    model = instantiate(cfg.model)(in_channels=4, out_channels=2)
    assert all((layer.rewiring is None) == (option == "paper") for layer in model.layers)


@pytest.mark.parametrize(
    ("dataset", "flow"),
    [
        *(("cora", flow) for flow in options("flow")),
        # Elsewhere no flow can differ from the others, since the files say what is larger.
        *((dataset, "beltrami") for dataset in options("dataset") if dataset != "cora"),
    ],
)
def test_only_deep_flows_on_cora_get_a_larger_model(
    compose: Compose, dataset: str, flow: str
) -> None:
    larger_flows = ("beltrami", "mean_curvature", "uniform_modulation")
    exceptions = {f"cora_graph_pde_{name}" for name in larger_flows}
    assert set(options("dataset_model_flow")) == exceptions
    model = compose(f"dataset={dataset}", f"flow={flow}").model
    larger = f"{dataset}_graph_pde_{flow}" in exceptions
    assert (model.num_layers, model.hidden_channels) == ((4, 128) if larger else (3, 64))


def test_surrogate_does_not_follow_the_victims_size(compose: Compose) -> None:
    cfg = compose("dataset=cora", "flow=beltrami", "model.hidden_channels=16")
    (surrogate,) = cfg.threat.surrogates.values()
    assert (surrogate.num_layers, surrogate.hidden_channels) == (3, 64)


@pytest.mark.parametrize("option", options("surrogate"))
def test_surrogate_is_the_model_of_its_name(compose: Compose, option: str) -> None:
    surrogates = resolved(compose, f"surrogate={option}", "model=gcn").threat.surrogates
    assert list(surrogates) == [option]
    model = instantiate(surrogates[option])(in_channels=5, out_channels=3)
    assert model(torch.randn(4, 5), torch.tensor([[0, 1], [1, 0]])).shape == (4, 3)
    expected = instantiate(compose(f"model={option}").model)(in_channels=5, out_channels=3)
    assert type(model) is type(expected)


@pytest.mark.parametrize("flow", options("flow"))
@pytest.mark.parametrize(
    ("choice", "node"),
    [
        ("model=beltrami_guard", "model"),
        ("surrogate=[graph_pde]", "surrogates.graph_pde"),
        ("surrogate=[beltrami_guard]", "surrogates.beltrami_guard"),
    ],
)
def test_who_brings_a_flow_has_that_one_whatever_flow_says(
    compose: Compose, choice: str, node: str, flow: str
) -> None:
    brought = OmegaConf.select(compose(choice, f"flow={flow}"), node)
    assert plain(brought)["flow"] == plain(compose("flow=beltrami"))["flow"]
    model = instantiate(brought)(in_channels=4, out_channels=2)
    assert all(type(layer.flow).__name__ == "Beltrami" for layer in model.layers)


def test_an_override_beats_the_exception(compose: Compose) -> None:
    assert compose("dataset=cora", "flow=beltrami", "model.num_layers=2").model.num_layers == 2


SWITCHES = {
    ".flow.attention": ("trained", "resampled"),
    ".flow.gradient_norm": ("edges", "residual"),
    ".flow.gradient_floor": (0.01, 0.1),
    ".solver.num_steps": (2, 1),
    ".data.degree_leak": (False, True),
    ".attacks.tdgia.variant": ("strict", "grb"),
}
REWIRING = {
    ".model.rewiring._target_": "robust_diffusion.models.Rewiring",
    ".model.rewiring.keep_ratio": 0.5,
    ".model.rewiring.add_ratio": 0.02,
    ".model.rewiring.drop_quantile": 0.05,
}


def test_fidelity_changes_what_it_says_and_nothing_else(compose: Compose) -> None:
    paper, released = (flat(plain(compose(f"fidelity={f}"))) for f in ("paper", "released"))
    changed = {k for k in paper | released if paper.get(k, "no key") != released.get(k, "no key")}
    # The model holds copies of flow and solver.
    copies = (".fidelity", ".model.flow", ".model.solver")
    changed = {key for key in changed if not key.startswith(copies)}
    assert changed == {*SWITCHES, *REWIRING, ".model.rewiring"}
    assert paper[".model.rewiring"] is None
    assert {key: released[key] for key in REWIRING} == REWIRING
    for key, values in SWITCHES.items():
        assert (paper[key], released[key]) == values


@pytest.mark.parametrize(
    ("choice", "key", "values"),
    [
        ("flow=grand", ".flow.rate", (1.0, 0.5)),
        ("flow=heat", ".flow.weights", ("uniform", "frozen_attention")),
        ("flow=heat_plus", ".flow.weights", ("uniform", "frozen_attention")),
        ("flow=p_laplacian", ".flow.modulation", ("softmax", "power_without_row_sum")),
        ("flow=p_laplacian", ".flow.gradient_ceiling", (None, 10.0)),
        ("model=beltrami_guard", ".model.reweight", (True, False)),
        ("model=beltrami_guard", ".model.gradient", ("exact", "detached")),
        ("model=gnn_guard", ".model.gradient", ("exact", "detached")),
        ("model=gcn_svd", ".model.gradient", ("exact", "detached")),
        ("attack=pgd_modification", ".attacks.pgd_modification.variant", ("ball", "step")),
        ("dataset=coauthor", ".data.edge_values", ("ones", "ids")),
        ("dataset=amazon_computer", ".data.edge_values", ("ones", "ids")),
        ("dataset=cora", ".data.edge_values", ("ones", "ones")),
        ("dataset=custom", ".data.edge_values", ("ones", "ones")),
    ],
)
def test_what_one_option_alone_has_follows_fidelity(
    compose: Compose, choice: str, key: str, values: tuple[Any, Any]
) -> None:
    readings = (flat(plain(compose(choice, f"fidelity={f}"))) for f in ("paper", "released"))
    assert tuple(reading[key] for reading in readings) == values


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ([], (2, None)),
        (["fidelity=released"], (1, None)),
        (["solver.step_size=0.3"], (None, 0.3)),
        (["solver.num_steps=4", "solver.step_size=0.3"], (4, 0.3)),  # refused by the solver
    ],
)
def test_a_step_size_takes_the_place_of_the_number_of_steps(
    compose: Compose, given: list[str], steps: tuple[int | None, float | None]
) -> None:
    cfg = compose("surrogate=[graph_pde]", *given)
    for holder in (cfg, cfg.model, cfg.threat.surrogates.graph_pde):
        assert (holder.solver.num_steps, holder.solver.step_size) == steps


@pytest.mark.parametrize("option", [o for o in options("model") if "pde" in o or "beltrami" in o])
@pytest.mark.parametrize("surrogates", ["gcn", "beltrami_guard,graph_pde"])
def test_a_solver_without_a_step_size_makes_the_cell_it_made_before_there_was_one(
    compose: Compose, option: str, surrogates: str
) -> None:
    from robust_diffusion.records.identity import hashed_config

    cfg = compose(f"model={option}", f"surrogate=[{surrogates}]", "solver=rk4")
    assert not [key for key in flat(hashed_config(plain(cfg))) if key.endswith(".step_size")]
    cfg = compose(f"model={option}", f"surrogate=[{surrogates}]", "solver.step_size=0.5")
    assert ".model.solver.step_size" in flat(hashed_config(plain(cfg)))


def test_both_readings_have_the_same_switches_and_something_reads_each() -> None:
    switches = [set(OmegaConf.load(CONF / "fidelity" / f"{f}.yaml")) for f in options("fidelity")]
    assert all(keys == switches[0] for keys in switches)
    text = "".join(file.read_text() for file in CONF.glob("**/*.yaml"))
    assert switches[0] == set(re.findall(r"\$\{fidelity\.(\w+)\}", text))
