import re
from collections.abc import Callable

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, read_write

from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.overrides import check_config
from robust_diffusion.records import provenance
from robust_diffusion.records.header import record_header

Compose = Callable[..., DictConfig]
GUARDED = "model=beltrami_guard"  # has a Beltrami flow of its own


@pytest.mark.parametrize(
    ("options", "unread"),
    [
        ([], "+nope=1"),
        ([], "certificate=sparse"),
        (["model=gcn"], "fidelity.graph_sage=foo"),
        ([GUARDED, "flow=beltrami"], "flow.heads=2"),
        (["threat=white_box"], "threat.name=adaptive"),
        (["timing=step"], "training.max_epochs=3"),
    ],
)
def test_unread_overrides_are_refused(compose: Compose, options: list[str], unread: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(unread.lstrip('+'))}: "):
        check_config(compose(*options, unread))


def test_overrides_of_a_models_own_flow_are_taken_and_a_sweep_only_warns(
    compose: Compose, caplog: pytest.LogCaptureFixture
) -> None:
    own = compose(GUARDED, "flow=beltrami", "model.flow.t_end=0.5", "solver=rk4")
    check_config(own)
    record = record_header(own)
    assert (record.flow, record.solver) == ("beltrami", "rk4")
    assert record.config.model["flow"]["t_end"] == 0.5
    cfg = compose(GUARDED, "flow=heat")
    with read_write(HydraConfig.get()):
        HydraConfig.get().mode = RunMode.MULTIRUN
    check_config(cfg)
    assert "flow=heat" in caplog.text


@pytest.mark.parametrize(
    ("option", "unread"),
    [
        ("model=mlp", ["flow=heat", "solver=dopri5", "flow.t_end=2", "fidelity.num_steps=1"]),
        ("threat=white_box", ["surrogate=[gat]"]),
        ("attack=none", ["threat=white_box", "budget.max_injected_nodes=1"]),
        ("flow=heat", []),
        ("threads=2", []),
    ],
)
def test_read_options_and_no_others_make_other_runs(
    compose: Compose, monkeypatch: pytest.MonkeyPatch, option: str, unread: list[str]
) -> None:
    before = record_header(compose(option)).run
    assert before != record_header(compose()).run
    monkeypatch.setattr(provenance, "cpu_name", lambda: "another processor")
    assert record_header(compose(option, *unread)).run == before
