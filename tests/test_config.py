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


def plain(cfg: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]


def flat(node: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {path: node}
    return {k: v for key, child in node.items() for k, v in flat(child, f"{path}.{key}").items()}


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
    "by_choice",
    [
        {
            "flow=grand": {".flow.rate": (1.0, 0.5)},
            "model=beltrami_guard": {
                ".model.reweight": (True, False),
                ".model.gradient": ("exact", "detached"),
            },
            "dataset=coauthor": {".data.edge_values": ("ones", "ids")},
        },
        {
            "flow=heat": {".flow.weights": ("uniform", "frozen_attention")},
            "model=gnn_guard": {".model.gradient": ("exact", "detached")},
            "dataset=amazon_computer": {".data.edge_values": ("ones", "ids")},
            "attack=pgd_modification": {".attacks.pgd_modification.variant": ("ball", "step")},
        },
        {
            "flow=heat_plus": {".flow.weights": ("uniform", "frozen_attention")},
            "model=gcn_svd": {".model.gradient": ("exact", "detached")},
            "dataset=cora": {".data.edge_values": ("ones", "ones")},
        },
        {
            "flow=p_laplacian": {
                ".flow.modulation": ("softmax", "power_without_row_sum"),
                ".flow.gradient_ceiling": (None, 10.0),
            },
            "dataset=custom": {".data.edge_values": ("ones", "ones")},
        },
    ],
    ids=lambda by_choice: " ".join(by_choice),
)
def test_what_one_option_alone_has_follows_fidelity(
    compose: Compose, by_choice: dict[str, dict[str, tuple[Any, Any]]]
) -> None:
    readings = [flat(plain(compose(*by_choice, f"fidelity={f}"))) for f in ("paper", "released")]
    for values in by_choice.values():
        assert {key: tuple(reading[key] for reading in readings) for key in values} == values


def test_both_readings_have_the_same_switches_and_something_reads_each() -> None:
    switches = [set(OmegaConf.load(CONF / "fidelity" / f"{f}.yaml")) for f in options("fidelity")]
    assert all(keys == switches[0] for keys in switches)
    text = "".join(file.read_text() for file in CONF.glob("**/*.yaml"))
    assert switches[0] == set(re.findall(r"\$\{fidelity\.(\w+)\}", text))


PARTS = ("flow", "solver", "model", "data", "budget", "attacks", "threat", "training", "callbacks")
NAMED = {"solver": "solver.method", "dataset": "data.name"}
"""Keys that name the option of their group."""


BY_ITSELF = ("batching", "experiment", "threat")  # does not go with any other option
ALONE = [{group: option} for group in BY_ITSELF for option in options(group)]
MIXED = {group: options(group) for group in GROUPS if group not in BY_ITSELF}
TOGETHER = [
    {group: found[i % len(found)] for group, found in MIXED.items()}
    for i in range(max(map(len, MIXED.values())))
]
"""Every option of every other group at least once."""


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(chosen, marks=[pytest.mark.slow] if "experiment" in chosen else [])
        for chosen in [*TOGETHER, *ALONE]
    ],
    ids=str,
)
def test_every_option_composes_and_instantiates(compose: Compose, chosen: dict[str, str]) -> None:
    needed = ["attacks.given.path=adj.npz"] * (chosen.get("attack") == "given")
    cfg = compose(*(f"{group}={option}" for group, option in chosen.items()), *needed)
    assert plain(cfg)
    for part in PARTS:
        instantiate(cfg.get(part))
    if chosen in ALONE:
        assert "threat" not in chosen or instantiate(cfg.threat).name == chosen["threat"]
        return
    assert {group: OmegaConf.select(cfg, key) for group, key in NAMED.items()} == {
        group: chosen[group] for group in NAMED
    }
    assert list(cfg.attacks) == [chosen["attack"]] * (chosen["attack"] != "none")
    if chosen["trainer"] != "gpu":
        assert isinstance(instantiate(cfg.trainer)(logger=False, max_epochs=1), pl.Trainer)
    (model,) = cfg.threat.surrogates.values()
    made = instantiate(model)(in_channels=5, out_channels=3)
    assert made(torch.randn(4, 5), torch.tensor([[0, 1], [1, 0]])).shape == (4, 3)


def test_every_model_can_be_a_surrogate_and_every_method_a_solver(compose: Compose) -> None:
    from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS

    assert options("surrogate") == options("model")
    for name in options("solver"):
        assert compose(f"solver={name}").solver.method == name
    for option, methods in (("rk4", FIXED_STEP_METHODS), ("dopri5", ADAPTIVE_METHODS)):
        for method in methods:
            cfg = compose(f"solver={option}", f"solver.method={method}")
            assert instantiate(cfg.solver).method == method
    several = compose("surrogate=[gcn,graph_pde,mlp]").threat.surrogates
    assert list(several) == ["gcn", "graph_pde", "mlp"]
    # A surrogate does not follow the victim's size.
    cfg = compose("dataset=cora", "flow=beltrami", "model.hidden_channels=16")
    (surrogate,) = cfg.threat.surrogates.values()
    assert (surrogate.num_layers, surrogate.hidden_channels) == (3, 64)


@pytest.mark.parametrize(
    "chosen", ["none", "[csv,tensorboard]", pytest.param("wandb", marks=pytest.mark.slow)]
)
def test_loggers_instantiate(compose: Compose, chosen: str) -> None:
    loggers = compose(f"logger={chosen}").logger
    assert list(loggers) == [name for name in chosen.strip("[]").split(",") if name != "none"]
    for name, options in loggers.items():
        made = instantiate(options, _partial_=True)  # a W&B run is that of a recorded one
        logger = made(record=finished(run="c311")) if name == "wandb" else made()
        assert isinstance(logger, pl.loggers.Logger)
        if name == "wandb":
            logger.experiment.finish()


def test_only_deep_flows_on_cora_get_a_larger_model(compose: Compose) -> None:
    def size(*overrides: str) -> tuple[int, int]:
        model = compose(*overrides).model
        return model.num_layers, model.hidden_channels

    larger = {"beltrami", "mean_curvature", "uniform_modulation"}
    assert set(options("dataset_model_flow")) == {f"cora_graph_pde_{name}" for name in larger}
    for flow in (*larger, "heat", "grand"):
        assert size("dataset=cora", f"flow={flow}") == ((4, 128) if flow in larger else (3, 64))
    # Elsewhere no flow can differ from the others, since the files say what is larger.
    assert size("dataset=pubmed", "flow=beltrami") == (3, 64)
    assert size("dataset=cora", "flow=beltrami", "model.num_layers=2") == (2, 128)


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ([], (2, None)),
        (["fidelity=released"], (1, None)),
        (["solver.step_size=0.25"], (None, 0.25)),
        (["solver.num_steps=4", "solver.step_size=0.25"], (4, 0.25)),  # refused by the solver
    ],
)
def test_a_step_size_takes_the_place_of_the_number_of_steps(
    compose: Compose, given: list[str], steps: tuple[int | None, float | None]
) -> None:
    cfg = compose("surrogate=[graph_pde]", *given)
    for holder in (cfg, cfg.model, cfg.threat.surrogates.graph_pde):
        assert (holder.solver.num_steps, holder.solver.step_size) == steps
