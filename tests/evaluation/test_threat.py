import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from robust_diffusion.attacks.task import Knowledge
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import BlackBox, WhiteBox
from robust_diffusion.evaluation.load import ModelTraining, Recipe
from robust_diffusion.evaluation.threat import OpenThreat, threat_model
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GAT, GraphPDE
from robust_diffusion.models.edge_values import OnEdgeValues
from robust_diffusion.models.victim import Victim
from robust_diffusion.records.store import ArtifactStore
from tests.backends import backend
from tests.graphs import without_type_checks
from tests.models.small import gcn

Make = Callable[..., Any]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("surrogates", "options", "key"),
    [
        ({}, {}, "surrogates: expected"),
        ({"gcn": gcn, "../x": gcn}, {}, "surrogates="),
        ({"victim": gcn}, {}, "surrogates=victim"),
        ({"gcn": gcn}, {"attacker_knows": "wrong"}, "threat.attacker_knows="),
        ({"gcn": gcn}, {"seeding": "wrong"}, "threat.seeding="),
    ],
)
def test_black_box_errors(make_fit: Make, surrogates: Any, options: Any, key: str) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=f"^{re.escape(key)}"):
        BlackBox(surrogates, make_fit(), **options)


X, EDGES = torch.rand(3, 4), torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])


@pytest.mark.parametrize("name", get_args(OpenThreat))
@pytest.mark.parametrize("knows", get_args(Knowledge))
def test_threat_model_is_that_of_conf(name: OpenThreat, knows: Knowledge) -> None:
    options = OmegaConf.load(CONFIG_DIR / "threat" / f"{name}.yaml")
    configured = instantiate(options, attacker_knows=knows)
    assert vars(threat_model(name, knows)) == vars(configured)
    assert type(configured) is WhiteBox


@pytest.mark.parametrize("adjoint", [True, False])
def test_white_box_adjoint(*, adjoint: bool) -> None:
    solver = Solver("rk4", num_steps=8, adjoint=not adjoint)
    victim = Victim(GraphPDE(4, 8, out_channels=3, flow=Heat, solver=solver), X, EDGES)
    attacked = WhiteBox(adjoint=adjoint).form(victim)
    assert all(layer.solver.adjoint is adjoint for layer in attacked.module.layers)
    assert all(layer.solver.adjoint is not adjoint for layer in victim.module.layers)


@pytest.fixture
def make_training(make_datamodule: Make, tmp_path: Path) -> Make:
    """Builds a ModelTraining on a small graph; keyword arguments replace its parts."""

    def build(**parts: Any) -> ModelTraining:
        given = {"datamodule": make_datamodule(), "seed": 0} | parts
        return ModelTraining(store=ArtifactStore(tmp_path / "store"), directory=tmp_path, **given)

    return build


def test_model_training_edge_values(
    make_training: Make, make_datamodule: Make, make_fit: Make
) -> None:
    valued = make_training(datamodule=make_datamodule(edge_values="ids"))
    recipe = Recipe(gcn, make_fit(), {})
    on_values, on_ones = (
        training("victim", recipe, description="gcn") for training in (valued, make_training())
    )
    assert isinstance(on_values.model, OnEdgeValues)
    assert on_values.path != on_ones.path

    def gat(in_channels: int, out_channels: int) -> nn.Module:
        return GAT(in_channels, 8, out_channels=out_channels)

    assert isinstance(valued.untrained(gat), GAT)


def test_model_training_keys(make_training: Make, make_fit: Make, make_datamodule: Make) -> None:
    def path(shape: Any = None, name: str = "torch", threads: int = 1, **parts: Any) -> Path:
        torch.set_num_threads(threads)
        try:
            with backend(name):
                training = make_training(**parts)
                made = training(
                    "victim", Recipe(gcn, make_fit(max_epochs=1), shape or {}), description=""
                )
                return Path(made.path)
        finally:
            torch.set_num_threads(1)

    paths = [path(), path(seed=1), path({"fit": 4}), path(name="compiled"), path(threads=2)]
    paths.append(path(datamodule=make_datamodule(degree_leak=True)))
    assert len(set(paths)) == len(paths)
