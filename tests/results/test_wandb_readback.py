"""An offline W&B run, read back from its file, holds what record and dashboards say."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.dashboard import Dashboard, build_dashboard
from tests.results.wandb_files import Logged

TABLES = [f"table-{number}" for number in (1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14)]


def lacking(dashboard: Dashboard | None, logged: Logged) -> set[str]:
    """Return the keys of a dashboard that a run lacks, whatever the attack."""

    def of_any_attack(keys: set[str]) -> set[str]:
        return {re.sub(r"/(speit|tdgia|pgd_modification)(?=/|$)", "/*", key) for key in keys}

    assert dashboard is not None
    wanted = {*dashboard.filters, *dashboard.groups}
    for kind, _, *keys in (panel for panels in dashboard.sections.values() for panel in panels):
        place = "history" if kind == "line" else "summary"
        wanted |= {key if key.startswith("config:") else f"{place}:{key}" for key in keys}
    return of_any_attack(wanted) - of_any_attack(logged.keys)


@pytest.mark.slow
def test_a_sweep_in_wandb_holds_what_records_and_dashboards_say(
    cli: Callable[..., Any], tiny: list[str], tmp_path: Path
) -> None:
    sweep = ("-m", "experiment=demo", "flow=p_laplacian", "flow.p=3,4", "logger=wandb")
    record, _ = cli(*sweep, "mlp=false", *tiny).records
    found = {of.about["run_id"]: of for of in map(Logged, (tmp_path / "outputs").rglob("*.wandb"))}
    assert len(found) == 3  # two runs, and the table
    logged, table = found[record.run], found["demo-full"]
    run, summary, config = logged.run, logged.run["summary"], logged.run["config"]
    assert (run["state"], run["exit_code"]) == ("finished", 0)
    assert run["project"] == "robust_diffusion"
    # Names say what the sweep varies, and the group is the sweep.
    assert run["name"] == "flow.p=3"
    assert {of.about["run_group"] for of in found.values()} == {"demo"}
    choices = ["synthetic", "graph_pde", "p_laplacian", "black_box", "paper"]
    assert logged.about["tags"] == [*choices, "demo"]
    assert table.run["summary"]["demo"]["nrows"] == 2

    # One name per number, none in the configuration.
    assert config["run"]["dataset"] == "synthetic"
    assert config["training"]["max_epochs"] == record.config.training["max_epochs"]
    assert not {"accuracy", "epochs", "seconds", "record"} & {*config, *config["run"]}
    for graph, accuracy in record.accuracy.items():
        assert summary[f"accuracy/{graph}"] == pytest.approx(accuracy)
    assert not any(key.startswith(("mean_accuracy", "test/")) for key in summary)
    assert summary["epochs"] == record.epochs
    assert summary["nfe"] == record.nfe
    assert summary["spent/speit/injected_edges"] == 9

    # The summary is that of the first epoch of the best validation accuracy.
    validated = [point for point in logged.curves if "val_loss" in point]
    assert len(validated) == record.epochs
    best = max(validated, key=lambda point: point["val_accuracy"])
    trained = next(
        of for of in logged.curves if "train_loss" in of and of["epoch"] == best["epoch"]
    )
    assert summary["epoch"] == best["epoch"]
    assert summary["val_loss"] == best["val_loss"]
    assert summary["train_loss"] == trained["train_loss"]
    kinds = [r["artifact"]["type"] for r in logged.entries if r["type"] == "artifact"]
    assert sorted(kinds) == ["model", "perturbed-graph", "perturbed-graph"]

    for experiment in ("none", *TABLES):
        assert lacking(build_dashboard(experiment), logged) == set(), experiment
