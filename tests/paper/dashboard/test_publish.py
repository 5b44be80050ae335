"""Requests that reach W&B, recorded by a local server with its answers."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import wandb

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.dashboard import project_dashboard, table_dashboard
from robust_diffusion.paper.dashboard.publish import default_entity, publish, to_workspace
from robust_diffusion.paper.dashboard.spec import Dashboard
from robust_diffusion.paper.layout import load_layout, table_numbers

PROJECT = {"entity": "me", "project": "robust_diffusion"}
USER = {"id": "1", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}

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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = reply(asked["query"], asked.get("variables") or {}, held)
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
        # W&B keeps the address that it saw first.
        wandb.teardown()
        yield held
        server.shutdown()
    wandb.teardown()


def texts(node: Any) -> set[str]:
    """Every text in a tree of lists and dictionaries."""
    if isinstance(node, dict):
        return {text for child in node.values() for text in texts(child)}
    if isinstance(node, list):
        return {text for child in node for text in texts(child)}
    return {node} if isinstance(node, str) else set()


def every_dashboard() -> list[Dashboard]:
    numbers = [n for n in table_numbers() if load_layout(n).kind != "budgets"]
    return [project_dashboard(), *map(table_dashboard, numbers)]


@pytest.mark.parametrize("dashboard", every_dashboard(), ids=lambda d: d.name)
def test_every_panel_becomes_one_of_wandb(dashboard: Dashboard) -> None:
    spec = to_workspace(dashboard, **PROJECT)._spec["spec"]["section"]
    sections = spec["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == [s.title for s in dashboard.sections]
    kinds = {"bar": "Bar Chart", "line": "Run History Line Plot", "scatter": "Scatter Plot"}
    for section, wanted in zip(sections, dashboard.sections, strict=True):
        types = [panel["viewType"] for panel in section["panels"]]
        assert types == [kinds[panel.kind] for panel in wanted.panels]
        for panel, own in zip(section["panels"], wanted.panels, strict=True):
            said = texts(panel)
            assert own.title in said
            for key in filter(None, (own.x, own.y)):
                place, _, name = key.partition(":")
                first, _, rest = name.partition(".")
                forms = {f"config:{first}.value.{rest}", name, f"summary:{name}"}
                assert forms & said, place


def test_runs_are_filtered_and_grouped_by_nested_configuration() -> None:
    (runs,) = to_workspace(table_dashboard(3), **PROJECT)._spec["spec"]["section"]["runSets"]
    filters = runs["filters"]["filters"]
    assert {":".join((f["key"]["section"], f["key"]["name"])): f["value"] for f in filters} == {
        "run:tags": ["table-3"],
        "run:jobType": "cell",
        "config:record.value.scale": "full",
        "config:record.value.fidelity": "paper",
    }
    groups = [(group["section"], group["name"]) for group in runs["grouping"]]
    assert groups == [("config", "record.value.dataset"), ("config", "record.value.flow")]


def test_a_view_is_created_once_then_updated(views: Views) -> None:
    assert default_entity() == "me"
    first = publish(table_dashboard(3), **PROJECT)
    ((name, old),) = views.items()
    assert old["displayName"] == "Table 3: flows (paper)"
    assert first.endswith(f"/me/robust_diffusion?nw={name.removeprefix('nw-').removesuffix('-v')}")
    changed = Dashboard(table_dashboard(3).name, {"run:Group": "other"}, (), ())
    assert publish(changed, **PROJECT) == first
    assert list(views) == [name]
    section = json.loads(views[name]["spec"])["section"]
    assert section["panelBankConfig"]["sections"] == []
    assert [f["value"] for f in section["runSets"][0]["filters"]["filters"]] == ["other"]
    assert publish(table_dashboard(1), **PROJECT) != first
    assert len(views) == 2


def test_an_unknown_project_is_named(views: Views) -> None:
    with pytest.raises(ConfigError, match="me/nope"):
        publish(table_dashboard(3), entity="me", project="nope")
    assert views == {}


def test_what_wandb_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str) -> None:
        raise wandb.errors.CommError("not yours\nsecond line")

    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.from_url", refuse)
    with pytest.raises(ConfigError, match=r"^dashboard Table 3.*\(not yours\)"):
        publish(table_dashboard(3), **PROJECT)
