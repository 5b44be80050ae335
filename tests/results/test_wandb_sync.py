"""What `make wandb-sync` sends to W&B, recorded by a local server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.cells.loggers import wandb_logger
from tests.graphql import answering
from tests.paper.records import finished

MAKEFILE = Path(__file__).parents[2] / "Makefile"
PROJECT = {"id": "1", "name": "p", "entity": {"id": "1", "name": "me"}}
ANSWERS: dict[str, Any] = {
    "CreateRunFiles": {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": []}},
    "RunResumeStatus": {"model": PROJECT | {"bucket": None}},
}
VIEWER = {"viewer": {"id": "1", "entity": "me", "username": "me"}}

Queries = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def server() -> Iterator[tuple[str, Queries]]:
    """Its address; names and variables of the queries that reach it, in order."""
    asked: Queries = []

    def answer(sent: dict[str, Any]) -> dict[str, Any]:
        name, variables = sent.get("operationName"), sent.get("variables") or {}
        if name:
            asked.append((name, variables))
        if name == "UpsertBucket":
            run = {"id": "1", "name": variables["name"], "project": PROJECT}
            return {"upsertBucket": {"bucket": run, "inserted": True}}
        data: dict[str, Any] = ANSWERS.get(name or "", VIEWER)
        return data

    with answering(answer) as address:
        yield address, asked


@pytest.mark.slow
@pytest.mark.parametrize("done", [False, True])
def test_what_was_made_of_a_record_resumes_the_run(server: tuple[str, Queries], done: bool) -> None:
    address, queries = server
    options: Any = {"project": "p", "directory": "outputs", "mode": "offline", "finished": done}
    record = finished(cell="c311")
    wandb_logger(record=record, experiments=["table-3"], **options).experiment.finish()
    subprocess.run(
        ["make", "-f", str(MAKEFILE), "wandb-sync", f"BIN={Path(sys.executable).parent}", "STAMP="],
        check=True,
        capture_output=True,
        env=os.environ
        | {
            "WANDB_MODE": "online",
            "WANDB_BASE_URL": address,
            "WANDB_API_KEY": "0123456789" * 4,
        },
        timeout=120,
    )
    names = [name for name, _ in queries if name in ("RunResumeStatus", "UpsertBucket")]
    assert names[: done + 1] == ["RunResumeStatus", "UpsertBucket"][1 - done :]
    first = next(variables for name, variables in queries if name == "UpsertBucket")
    assert first["name"] == "c311"
    assert first["tags"][-1] == "table-3"
