import re
from collections.abc import Callable

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, read_write

from robust_diffusion.cells.overrides import check_config, composed
from robust_diffusion.errors import ConfigError
from robust_diffusion.records.header import record_header
from robust_diffusion.records.records import Record

Compose = Callable[..., DictConfig]


def check(cfg: DictConfig) -> Record:
    check_config(cfg)
    return record_header(cfg)


GUARDED = "model=beltrami_guard"  # has a Beltrami flow of its own


@pytest.mark.parametrize(
    ("options", "unread", "remedy"),
    [
        ([], "+nope=1", "unknown key"),
        (["model=gcn"], "flow=heat", "drop it"),
        (["model=gcn"], "flow.t_end=3", "drop it"),
        (["model=gcn"], "solver=dopri5", "drop it"),
        ([GUARDED], "flow=heat", "drop it"),
        ([GUARDED], "flow.t_end=3", "set model.flow.t_end"),
        ([GUARDED, "flow=beltrami"], "flow.heads=2", "set model.flow.heads"),
        (["threat=white_box"], "surrogate=[gat]", "drop it"),
        (["threat=white_box"], "threat.name=adaptive", "set threat"),
        (["model=gcn"], "fidelity.graph_sage=foo", "drop it"),
        ([], "certificate=sparse", "write certify first"),
        (["timing=step"], "attack=[speit]", "drop it"),
        (["timing=step"], "threat=white_box", "drop it"),
        (["timing=step"], "training.max_epochs=3", "drop it"),
        (["timing=step"], "surrogate=[gat]", "drop it"),
        (["timing=step"], "adversary=injection", "drop it"),
    ],
)
def test_unread_overrides_are_refused(
    compose: Compose, options: list[str], unread: str, remedy: str
) -> None:
    message = rf"{re.escape(unread.lstrip('+'))}: .*{re.escape(remedy)}"
    with pytest.raises(ConfigError, match=message):
        check(compose(*options, unread))


def test_overrides_of_a_models_own_flow_are_taken(compose: Compose) -> None:
    overrides = ["flow=beltrami", "model.flow.t_end=0.5", "solver=rk4", "solver.num_steps=1"]
    record = check(compose(GUARDED, *overrides))
    assert (record["flow"], record["solver"]) == ("beltrami", "rk4")
    assert record["config"]["model"]["flow"]["t_end"] == 0.5
    assert record["config"]["model"]["solver"]["num_steps"] == 1


def test_a_sweep_only_warns_of_unread_overrides(
    compose: Compose, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = compose(GUARDED, "flow=heat")
    with read_write(HydraConfig.get()):
        HydraConfig.get().mode = RunMode.MULTIRUN
    assert check(cfg)["flow"] == "beltrami"
    assert "flow=heat" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        ["model=gcn", "model.layer_norm=no"],
        ["data.degree_leak=no"],
        ["download=no"],
        ["fidelity.num_steps=nan"],
        ["+model.nope=1"],
        ["paths.records=[]"],
        ["time_limit=1e30"],
        ["time_limit=0.0001"],
        ["model=gcn", "model.hidden_channels=1e30"],
        ["trainer.devices=10000000000000000000000000"],
    ],
    ids=str,
)
def test_outside_of_hydra_too_a_value_is_refused_by_its_key(given: list[str]) -> None:
    key = re.escape(given[-1].lstrip("+").partition("=")[0])
    with pytest.raises(ConfigError, match=f"^{key}="):
        composed(given)
