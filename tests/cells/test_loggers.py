import builtins
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.cells import loggers
from tests.paper.records import finished

FAKE_KEY = "0123456789" * 4
NOBODY_LISTENS = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key in the environment or at home, and nobody to answer a question."""

    def ask(*_: Any) -> str:
        raise AssertionError("asked a question")

    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(builtins, "input", ask)
    yield
    if wandb.run is not None:
        wandb.run.finish()


def open_run(tmp_path: Path, **options: Any) -> WandbLogger:
    record = finished(cell="c311")
    given = {"project": "p", "record": record, "directory": str(tmp_path / "cell")}
    return loggers.wandb_logger(**given, **options)


@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_without_a_key_or_a_server_the_run_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_key: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("reached out to the network")

    if has_key:
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
        monkeypatch.setenv("WANDB_BASE_URL", NOBODY_LISTENS)
    else:
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
    start = time.perf_counter()
    logger = open_run(tmp_path, init_timeout=5)
    logger.log_metrics({"loss": 1.0})
    logger.experiment.finish()
    assert time.perf_counter() - start < 25
    told = [record for record in caplog.records if "logger=wandb" in record.getMessage()]
    assert len(told) == has_key  # offline by choice is no failure
    assert len(list(tmp_path.glob("cell/**/wandb/offline-run-*/*.wandb"))) == 1
