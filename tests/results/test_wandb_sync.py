"""What `make wandb-sync` sends to W&B, recorded by a local server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from robust_diffusion.results.loggers import wandb_logger
from tests.paper.records import finished

MAKEFILE = Path(__file__).parents[2] / "Makefile"
PROJECT = {"id": "1", "name": "p", "entity": {"id": "1", "name": "me"}}
ANSWERS: dict[str, Any] = {
    "CreateRunFiles": {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": []}},
    "RunResumeStatus": {"model": PROJECT | {"bucket": None}},
}

Queries = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def server() -> Iterator[tuple[str, Queries]]:
    """Its address; names and variables of the queries that reach it, in order."""
    asked: Queries = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, variables = sent.get("operationName"), sent.get("variables") or {}
            data = ANSWERS.get(name, {"viewer": {"id": "1", "entity": "me", "username": "me"}})
            if name == "UpsertBucket":
                run = {"id": "1", "name": variables["name"], "project": PROJECT}
                data = {"upsertBucket": {"bucket": run, "inserted": True}}
            if name:
                asked.append((name, variables))
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


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
