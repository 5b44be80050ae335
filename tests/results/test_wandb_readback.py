"""An offline W&B run, read back from its file, holds what record and dashboards say."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.paper.axes import GRAPHS
from robust_diffusion.paper.dashboard import Dashboard, project_dashboard, table_dashboard
from robust_diffusion.paper.layout import load_layout, table_numbers
from tests.results.wandb_files import Logged

ATTACKS = "|".join(graph for graph in GRAPHS if graph != "clean")
KINDS = {number: load_layout(number).kind for number in table_numbers()}


def lacking(dashboards: list[Dashboard], logged: Logged) -> set[str]:
    """Keys of dashboards that a run has not; whose attack it is does not matter."""

    def of_any_attack(keys: set[str]) -> set[str]:
        return {re.sub(f"/({ATTACKS})(?=/|$)", "/*", key) for key in keys}

    wanted = {key for of in dashboards for key in (*of.filters, *of.groups)}
    wanted |= {
        axis
        for of in dashboards
        for panels in of.sections.values()
        for panel in panels
        for axis in panel[2:]
    }
    return of_any_attack(wanted) - of_any_attack(logged.keys)


@pytest.fixture
def logged(cli: Callable[..., Any], tmp_path: Path) -> Callable[..., tuple[dict[str, Any], Logged]]:
    """Runs a cell with W&B; gives its record and what its run logged."""

    def run(*overrides: str) -> tuple[dict[str, Any], Logged]:
        (record,) = cli(*overrides, "logger=wandb").records
        (path,) = (tmp_path / "outputs").rglob("*.wandb")
        return record, Logged(path)

    return run


@pytest.mark.slow
def test_the_run_holds_what_record_and_dashboards_say(
    logged: Callable[..., Any], tiny: list[str]
) -> None:
    record, found = logged("experiment=demo", "flow=p_laplacian", *tiny)
    run = found.run
    assert (run["state"], run["exit_code"]) == ("finished", 0)
    assert run["project"] == "robust_diffusion"
    choices = ["synthetic", "graph_pde", "p_laplacian", "black_box", "paper"]
    assert found.about["tags"] == [*choices, "demo"]
    assert found.about["run_id"] == record["cell"]
    assert run["config"]["record"]["cell"] == record["cell"]
    assert run["config"]["training"]["max_epochs"] == record["config"]["training"]["max_epochs"]
    for graph, accuracy in record["accuracy"].items():
        assert run["summary"][f"accuracy/{graph}"] == pytest.approx(accuracy)
    assert run["summary"]["epochs"] == record["epochs"]
    assert run["summary"]["nfe"] == record["nfe"]
    assert run["summary"]["spent/speit/injected_edges"] == 9

    assert sum("val_loss" in point for point in found.curves) == record["epochs"]
    kinds = [r["artifact"]["type"] for r in found.entries if r["type"] == "artifact"]
    assert sorted(kinds) == ["model", "perturbed-graph", "perturbed-graph"]

    measured = [table_dashboard(n) for n, kind in KINDS.items() if kind == "accuracy"]
    assert len(measured) > 10
    assert lacking([project_dashboard(), *measured], found) == set()
