import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.overrides import composed
from robust_diffusion.paper.figures import build
from robust_diffusion.paper.figures.build import BuiltFigure, FigureRun, Options, build_figure
from robust_diffusion.paper.figures.draw import render
from robust_diffusion.records.identity import run_id

SMOKE = [
    "scale=smoke",
    "trainer=cpu",
    "trainer.max_steps=2",
    "training.progress_bar=false",
    "model.num_layers=2",
    "model.hidden_channels=8",
]
LIPSCHITZ = "lipschitz"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of a quick figure, its models kept for all tests of this file."""
    return [*SMOKE, f"paths.outputs={tmp_path_factory.mktemp('outputs')}"]


@pytest.fixture(scope="module")
def built(smoke: list[str]) -> BuiltFigure:
    return build_figure(LIPSCHITZ, smoke)


@pytest.mark.slow
def test_a_figure_says_what_shaped_it(built: BuiltFigure) -> None:
    about = built.description
    assert (about["dataset"], about["seed"], about["fidelity"]) == ("cora", 0, "paper")
    assert (about["scale"], about["label"], about["weights"]) == ("smoke", "tsne_q2", "attention")
    without, with_ = about["panels"]
    assert without["config"]["flow"]["lipschitz"] is False
    assert with_["config"]["flow"]["lipschitz"] is True
    assert without["run"] == run_id(without["config"]) != with_["run"]
    assert without["state"] != with_["state"]
    assert without["layer"] == 0
    assert without["nodes"] == 200
    for panel in about["panels"]:
        found = panel["statistics"]["attention"]
        assert found["intra_edges"] + found["inter_edges"] == 2 * panel["edges"]


@pytest.mark.slow
def test_the_same_seed_gives_the_stored_picture(
    smoke: list[str], built: BuiltFigure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "robust_diffusion.training.fit.Fit.__call__", lambda *_, **__: pytest.fail("trained")
    )
    again = build_figure(LIPSCHITZ, smoke)
    assert again.description == built.description
    assert render(again.figure, "png") == render(built.figure, "png")
    assert re.fullmatch("lipschitz-cora-paper-seed0-smoke-[0-9a-f]{8}", again.stem)
    assert again.stem == built.stem


@pytest.mark.slow
def test_a_run_shares_cell_and_model(cli: Callable[..., Any], tiny: list[str]) -> None:
    (record,) = cli("flow=grand", *tiny).records
    trained, _, about = build.train(
        "again", FigureRun(*composed(["flow=grand", *tiny, "logger=none"]))
    )
    assert about["run"] == record.run
    assert trained.reused
    assert trained.path.name == record.files["victim"]


@pytest.mark.slow
def test_large_graphs_are_sampled_but_counted_whole(smoke: list[str], built: BuiltFigure) -> None:
    whole = built.description["panels"][0]
    part = build_figure(LIPSCHITZ, smoke, Options(max_nodes=60)).description["panels"][0]
    assert part["nodes"] == 60
    assert part["edges"] < whole["edges"]
    assert part["statistics"] == whole["statistics"]


def test_an_edge_is_the_mean_of_its_directions() -> None:
    edges = pd.DataFrame({"src": [0, 3, 1], "dst": [3, 0, 2], "carried": [0.2, 0.4, 0.7]})
    drawn = build.undirected(edges, np.array([0, 1, 2, 3]))["carried"]
    assert drawn.to_dict() == pytest.approx({(0, 3): 0.3, (1, 2): 0.7})
    drawn = build.undirected(edges, np.array([1, 2, 3]))["carried"]
    assert drawn.to_dict() == {(0, 1): 0.7}
    with pytest.raises(ConfigError, match="--max-nodes"):
        build.undirected(edges, np.array([0, 1]))


def test_a_compared_override_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^flow\.lipschitz:"):
        build.panel_runs(LIPSCHITZ, ["flow.lipschitz=true"])
