"""An offline W&B run, read back from its file, holds what the record says."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WANDB = Path(sys.executable).with_name("wandb")


def inspected(path: Path, *options: str) -> str:
    command = [str(WANDB), "leet", "inspect", "--json", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def cell(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """A finished cell's record, and the file of its W&B run."""
    (record,) = cli("flow=heat", *tiny, "logger=wandb").records
    (path,) = (tmp_path / "outputs").rglob("*.wandb")
    return record, path


def test_the_run_says_what_the_record_says(cell: tuple[dict[str, Any], Path]) -> None:
    record, path = cell
    run = json.loads(inspected(path, "--summary"))
    assert (run["state"], run["exit_code"]) == ("finished", 0)
    assert run["project"] == "robust_diffusion"
    assert {"synthetic", "heat", "black_box", "paper"} <= set(run["tags"])
    assert run["config"]["record"]["cell"] == record["cell"]
    assert run["config"]["training"]["max_epochs"] == record["config"]["training"]["max_epochs"]
    for graph, accuracy in record["accuracy"].items():
        assert run["summary"][f"accuracy/{graph}"] == pytest.approx(accuracy)
    assert run["summary"]["epochs"] == record["epochs"]
    assert run["summary"]["nfe"] == record["nfe"]

    logged = [json.loads(line) for line in inspected(path).splitlines()]
    curves = [r["history"]["item"] for r in logged if r["type"] == "history"]
    assert sum("val_loss" in point for point in curves) == record["epochs"]
    kinds = [r["artifact"]["type"] for r in logged if r["type"] == "artifact"]
    assert sorted(kinds) == ["model", "perturbed-graph", "perturbed-graph"]
