import builtins
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.cells import loggers
from robust_diffusion.errors import ConfigError
from tests.paper.records import finished

Cli = Callable[..., Any]

FAKE_KEY = "0123456789" * 4
NOBODY_LISTENS = "http://127.0.0.1:9"
OWN_SERVER = {"WANDB_BASE_URL": "https://wandb.example.org/sub"}


def login(host: str) -> str:
    return f"machine {host} login user password {FAKE_KEY}\n"


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
    given = {"project": "p", "name": "n", "record": record, "directory": str(tmp_path / "cell")}
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


def test_an_unknown_mode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "nope")
    with pytest.raises(ConfigError, match=r"WANDB_MODE=nope: unknown; use one of disabled"):
        open_run(tmp_path)


@pytest.mark.parametrize(
    ("environment", "netrc", "has_key"),
    [
        ({}, "", False),
        ({"WANDB_API_KEY": FAKE_KEY}, "", True),
        ({}, login("api.wandb.ai"), True),
        ({}, "this is no netrc\n", False),
        (OWN_SERVER, login("api.wandb.ai"), False),
        (OWN_SERVER, login("wandb.example.org"), True),
    ],
)
def test_where_a_key_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Any, netrc: str, has_key: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home").mkdir()
    if netrc:
        (tmp_path / "home" / ".netrc").write_text(netrc)
        (tmp_path / "home" / ".netrc").chmod(0o600)
    assert loggers.has_key() is has_key


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
    assert "logging offline" in caplog.text
    assert len([r for r in caplog.records if "logger=wandb" in r.getMessage()]) == 1
    assert len(run_files(tmp_path / "cell", "offline-run")) == 1
