"""W&B dashboards, and the requests that reach a local server in W&B's place."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper import commands
from robust_diffusion.paper.commands import run_dashboard_command
from robust_diffusion.paper.dashboard import (
    Dashboard,
    publish,
    table_dashboard,
)
from robust_diffusion.paper.layout import load_layout, table_numbers
from tests.graphql import answering

PROJECT = {"entity": "me", "project": "robust_diffusion"}
USER = {"id": "1", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}
NUMBERS = [number for number in table_numbers() if load_layout(number).kind != "budgets"]

Views = dict[str, dict[str, Any]]


def reply(query: str, given: dict[str, Any], views: Views) -> dict[str, Any]:
    """The data that W&B answers a query with."""
    if "upsertView" in query:
        # W&B has one view per id; without one it makes a new view.
        old = next((name for name, view in views.items() if view["id"] == given.get("id")), None)
        name = old or given["name"]
        views[name] = given | {"id": f"id of {name}", "name": name}
        return {"upsertView": {"view": views[name], "inserted": old is None}}
    if "allViews" in query:
        if given["projectName"] != PROJECT["project"]:
            return {"project": None}
        found = views.get(given["viewName"])
        return {"project": {"allViews": {"edges": [{"node": found}] if found else []}}}
    return {"viewer": USER}


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Iterator[Views]:
    """The views that the server has, by their internal names."""
    held: Views = {}

    with answering(lambda asked: reply(asked["query"], asked.get("variables") or {}, held)) as url:
        monkeypatch.setenv("WANDB_BASE_URL", url)
        monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
        # W&B keeps the address that it saw first.
        wandb.teardown()
        yield held
    wandb.teardown()


def test_a_view_is_created_once_then_updated(views: Views) -> None:
    first = publish(table_dashboard(3), entity=None, project="robust_diffusion")
    ((name, old),) = views.items()
    assert old["displayName"] == "Table 3: flows (paper)"
    assert first.endswith(f"/me/robust_diffusion?nw={name.removeprefix('nw-').removesuffix('-v')}")
    changed = Dashboard(table_dashboard(3).name, {"run:Group": "other"}, [], {})
    assert publish(changed, **PROJECT) == first
    assert list(views) == [name]
    section = json.loads(views[name]["spec"])["section"]
    assert section["panelBankConfig"]["sections"] == []
    assert [f["value"] for f in section["runSets"][0]["filters"]["filters"]] == ["other"]
    assert publish(table_dashboard(1), **PROJECT) != first
    with pytest.raises(ConfigError, match="me/nope"):
        publish(table_dashboard(3), entity="me", project="nope")
    assert len(views) == 2


def test_a_dry_run_shows_the_dashboards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "dashboard.json"
    options = ["--scale", "smoke", "--fidelity", "released"]
    run_dashboard_command([*options, "--json", str(path)])
    run_dashboard_command([*options, "--dry-run"])
    written, shown = capsys.readouterr().out.split("\n", 1)
    assert written == str(path)
    dashboards = json.loads(shown)
    assert json.loads(path.read_text()) == dashboards
    names = [dashboard["name"] for dashboard in dashboards]
    assert names[0] == "All cells (released, smoke run)"
    assert "Table 14: pLap (released, smoke run)" in names
    assert len(names) == 1 + len(NUMBERS)


def test_without_package_connection_or_runs_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="--table 15"):
        run_dashboard_command(["--table", "15", "--dry-run"])
    with pytest.raises(ConfigError, match="WANDB_MODE"):
        run_dashboard_command(["--table", "3"])
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        run_dashboard_command(["--table", "3"])
