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


def run_files(folder: Path, kind: str) -> list[Path]:
    return list(folder.glob(f"**/wandb/{kind}-*/*.wandb"))


def test_without_a_key_the_run_is_offline_and_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("reached out to the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    start = time.perf_counter()
    logger = open_run(tmp_path)
    logger.log_metrics({"loss": 1.0})
    logger.experiment.finish()
    assert time.perf_counter() - start < 20
    assert "logger=wandb" not in caplog.text  # offline by choice, not after a failure
    assert len(run_files(tmp_path / "cell", "offline-run")) == 1


@pytest.mark.slow
def test_an_unreachable_server_falls_back_to_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    monkeypatch.setenv("WANDB_BASE_URL", NOBODY_LISTENS)
    start = time.perf_counter()
    logger = open_run(tmp_path, init_timeout=5)
    logger.log_metrics({"loss": 1.0})
    logger.experiment.finish()
    assert time.perf_counter() - start < 25
    assert len([r for r in caplog.records if "logger=wandb" in r.getMessage()]) == 1
    assert len(run_files(tmp_path / "cell", "offline-run")) == 1
