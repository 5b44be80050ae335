"""W&B dashboards of any experiment."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from robust_diffusion import attack_names, build_attack
from robust_diffusion.commands import dashboard
from robust_diffusion.commands.dashboard import build_dashboard, run_dashboard_command, to_workspace
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError

EXPERIMENTS = sorted(path.stem for path in CONFIG_DIR.glob("experiment/*.yaml"))


def test_a_dry_run_shows_the_experiments_that_log_by_themselves(cli: Callable[..., Any]) -> None:
    shown = json.loads(cli("dashboard", "--scale", "smoke", "--dry-run").out)
    names = [one["name"] for one in shown]
    assert names[0] == "All runs (paper, smoke run)"
    assert {"table-3 (paper, smoke run)", "table-14 (paper, smoke run)"} < {*names}
    assert len(names) == 14  # table 15 runs nothing


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_has_a_dashboard(experiment: str) -> None:
    found = build_dashboard(experiment)
    if experiment == "table-15":
        assert found is None
        return
    assert found is not None
    assert not any("{" in part for of in found.sections.values() for row in of for part in row)
    assert found.filters.get("Tags") == (None if experiment == "none" else experiment)


def test_a_dashboard_shows_the_attacks_and_what_the_sweep_varies() -> None:
    found = build_dashboard("table-10", fidelity="released")
    assert found is not None
    assert found.filters["config:run.fidelity"] == "released"
    assert found.groups == ["config:budget.epsilon", "config:budget.node_ratio"]
    by_epsilon = ["scatter", "clean by budget.epsilon", "accuracy/clean", "config:budget.epsilon"]
    assert by_epsilon in found.sections["What the sweep varies"]
    spent = [value for _, _, value in found.sections["Budgets spent"]]
    assert "spent/pgd_modification/changed_nodes" in spent
    assert not any("injected" in value for value in spent)


def test_a_fidelity_that_is_swept_tells_runs_apart() -> None:
    found = build_dashboard("guard-gradient")
    assert found is not None
    assert "config:run.fidelity" in found.groups
    assert "config:run.fidelity" not in found.filters


def test_a_dashboard_becomes_a_workspace() -> None:
    found = build_dashboard("table-10")
    assert found is not None
    view = to_workspace(found, entity="e", project="p")
    assert [len(section.panels) for section in view.sections] == [3, 4, 4, 6, 4]


def test_modifications_are_the_attacks_of_that_kind() -> None:
    stored = dashboard.OmegaConf.load(CONFIG_DIR / "dashboards.yaml")
    kinds = {name: build_attack(name).kind for name in attack_names() if name != "given"}
    listed = {*stored.modifications} - {"given"}
    assert listed == {name for name, kind in kinds.items() if kind == "modification"}


def test_without_package_connection_or_runs_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="--experiment table-15"):
        run_dashboard_command(["--experiment", "table-15", "--dry-run"])
    with pytest.raises(ConfigError, match="WANDB_MODE"):
        run_dashboard_command(["--experiment", "table-3"])
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        run_dashboard_command(["--experiment", "table-3"])
