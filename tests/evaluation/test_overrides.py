import re
from collections.abc import Callable

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, read_write

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.header import record_header
from robust_diffusion.evaluation.overrides import check_overrides
from robust_diffusion.evaluation.records import Record

Compose = Callable[..., DictConfig]


def check(cfg: DictConfig) -> Record:
    record = record_header(cfg)
    check_overrides(cfg, record)
    return record


GUARDED = "model=beltrami_guard"
HAS_ITS_OWN = f"{GUARDED} has its own, beltrami"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+nope=1"], "nope=1: unknown key"),
        (["model=gcn", "flow=heat"], "flow=heat: model=gcn has none; drop it"),
        (["model=gcn", "flow.t_end=3"], "flow.t_end=3: model=gcn has none; drop it"),
        (["model=gcn", "solver=dopri5"], "solver=dopri5: model=gcn has none; drop it"),
        ([GUARDED, "flow=heat"], f"flow=heat: {HAS_ITS_OWN}; drop it"),
        (
            [GUARDED, "flow.t_end=3"],
            f"flow.t_end=3: {HAS_ITS_OWN}; set model.flow.t_end instead",
        ),
        (
            [GUARDED, "flow=beltrami", "flow.heads=2"],
            f"flow.heads=2: {HAS_ITS_OWN}; set model.flow.heads instead",
        ),
    ],
)
def test_an_override_that_nothing_reads_is_refused(
    compose: Compose, tiny_clean: list[str], overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check(compose(*overrides, *tiny_clean))


def test_what_a_model_of_its_own_flow_reads_is_taken(
    compose: Compose, tiny_clean: list[str]
) -> None:
    overrides = ["flow=beltrami", "model.flow.t_end=0.5", "solver=rk4", "solver.num_steps=1"]
    record = check(compose(GUARDED, *overrides, *tiny_clean))
    assert record["model"] == "beltrami_guard"
    assert (record["flow"], record["solver"]) == ("beltrami", "rk4")
    assert record["config"]["model"]["flow"]["t_end"] == 0.5
    assert record["config"]["model"]["solver"]["num_steps"] == 1


def test_in_a_sweep_an_override_that_nothing_reads_is_left_to_the_others(
    compose: Compose, tiny_clean: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    cfg = compose(GUARDED, "flow=heat", *tiny_clean)
    with read_write(HydraConfig.get()):
        HydraConfig.get().mode = RunMode.MULTIRUN
    assert check(cfg)["flow"] == "beltrami"
    assert f"flow=heat: {HAS_ITS_OWN}; drop it" in caplog.text


@pytest.mark.parametrize(
    "override", ["attack=[speit]", "threat=white_box", "training.max_epochs=3", "surrogate=[gat]"]
)
def test_what_timing_does_not_read_is_refused(compose: Compose, override: str) -> None:
    message = f"{override}: timing trains and attacks nothing; drop it"
    with pytest.raises(ConfigError, match=re.escape(message)):
        check(compose(override, "timing=step"))
