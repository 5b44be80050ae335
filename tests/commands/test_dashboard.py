"""W&B dashboards of any experiment."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from robust_diffusion.attacks import attack_names, build_attack
from robust_diffusion.commands import dashboard
from robust_diffusion.commands.dashboard import (
    build_dashboard,
    publish,
    run_dashboard_command,
    to_workspace,
)
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError


@pytest.mark.slow
def test_a_dry_run_shows_the_experiments_that_log_by_themselves(cli: Callable[..., Any]) -> None:
    shown = json.loads(cli("dashboard", "--scale", "smoke", "--dry-run").out)
    names = [one["name"] for one in shown]
    assert names[0] == "All runs (paper, smoke run)"
    assert {"table-3 (paper, smoke run)", "table-14 (paper, smoke run)"} < {*names}
    assert len(names) == 14  # table 15 runs nothing


@pytest.mark.parametrize(
    "experiment", ["none", "demo", "poisoning", "table-7", "tune-check", "readings"]
)
def test_any_experiment_has_a_dashboard(experiment: str) -> None:
    found = build_dashboard(experiment)
    assert found is not None
    assert found.sections
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


def test_a_view_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    workspaces = pytest.importorskip("wandb_workspaces.workspaces")
    saved: list[Any] = []

    def save(view: Any) -> None:
        if view.project == "none":
            raise wandb.Error("no project")
        saved.append(view)

    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(default_entity="e"))
    monkeypatch.setattr(workspaces.Workspace, "save", save)
    monkeypatch.setattr(workspaces.Workspace, "url", "https://wandb.ai/e/p?nw=1")
    found = build_dashboard("demo")
    assert found is not None
    with pytest.raises(ConfigError, match="no project"):
        publish(found, entity=None, project="none")
    assert publish(found, entity=None, project="p") == "https://wandb.ai/e/p?nw=1"
    assert [(view.entity, view.name) for view in saved] == [("e", found.name)]


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
