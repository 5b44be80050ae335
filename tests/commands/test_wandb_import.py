"""W&B runs that are made of records hold what the runs themselves would have logged."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robust_diffusion.experiment import wandb_log
from robust_diffusion.records.records import encoded
from tests.paper.records import failed, finished
from tests.results.wandb_files import Logged

Record = dict[str, Any]
Cli = Callable[..., Any]


@pytest.fixture
def imports(cli: Cli) -> Callable[..., str]:
    """Imports records by the command, and gives what it says of the W&B runs."""

    def run(lines: list[Record], *options: str, status: int = 0) -> str:
        Path("own.jsonl").write_bytes(b"".join(encoded(lines)))
        outcome = cli("wandb-import", "own.jsonl", "--store", "store", *options)
        assert outcome.status == status, outcome.err
        said: str = outcome.out.removeprefix("offline in outputs: ")
        return said.strip()

    return run


def files(run: str) -> list[Path]:
    return sorted(Path("outputs").glob(f"**/wandb/offline-run-*/run-{run}.wandb"))


@pytest.mark.slow
def test_a_second_import_makes_the_changed_runs_alone(imports: Callable[..., str]) -> None:
    Path("store").mkdir()
    Path("store", "model-1.safetensors").write_bytes(b"weights")
    Path("secret").write_bytes(b"not ours")
    names = {"victim": "model-1.safetensors", "speit": "graph-1", "tdgia": "../secret"}
    lines = [finished(run="a", files=names), finished(run="b")]
    imports(lines, "--limit", "1", "--experiment", "table-3")
    assert [len(files(run)) for run in "ab"] == [1, 0]
    found = [e["artifact"] for e in Logged(*files("a")).entries if "artifact" in e]
    assert [(artifact["name"], artifact["type"]) for artifact in found] == [("a-victim", "model")]
    lines.append(finished(run="c", experiment="mlp"))
    imports(lines, "--experiment", "table-3")
    assert [len(files(run)) for run in "abc"] == [1, 1, 0]
    Path("store", "graph-1").write_bytes(b"edges")
    imports(lines, "--experiment", "table-3")
    assert [len(files(run)) for run in "abc"] == [2, 1, 0]


def test_cells_without_a_result_are_passed_over_and_others_go_on_after_a_failure(
    imports: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(record: Record, *_: Any, **__: Any) -> Any:
        if record["run"] == "interrupted":
            raise KeyboardInterrupt
        if record["run"] == "no/id":
            raise ValueError("no id\nmore")
        made.append(record["run"])
        return SimpleNamespace(offline=True)

    monkeypatch.setattr(wandb_log, "log_finished", make)
    monkeypatch.setattr(wandb_log, "log_table", lambda *_, **__: SimpleNamespace(offline=True))
    lines = [failed("no data") | {"run": "f"}, finished(run="no/id"), finished(run="a")]
    imports(lines, status=1)
    assert made == ["a"]
    imports([finished(run="interrupted"), *lines], status=130)
    assert made == ["a"]
    imports(lines, "--experiment", "nope", status=1)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    imports(lines, status=1)
