"""Passes as CUDA graphs, with replays that the CPU stands in for; on a card: tests/test_gpu.py."""

import copy
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from robust_diffusion.models import GCN
from robust_diffusion.training import Fit, cuda_graphs, module
from robust_diffusion.training.cuda_graphs import CapturedPasses

X = torch.rand(4, 5)
EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])
MODES: list[int] = []


class Restless(nn.Module):
    """Alternates on the host between two rules."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        return self.linear(x) * (1 + self.calls % 2)


def replayed(run: Any, *_: object, **__: object) -> Callable[[], Tensor]:
    """A replay that leaves what the host does as it was when it was recorded."""
    host = {k: v for k, v in vars(run.model).items() if isinstance(v, int)}

    def replay() -> Tensor:
        vars(run.model).update(host)
        return run()

    return replay


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", MODES.append)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", replayed)
    monkeypatch.setattr(cuda_graphs, "_forward", replayed)


def captured(run: CapturedPasses) -> list[bool]:
    return [key in run._recorded for key in run._passes]


def test_a_replay_leaves_buffers_and_random_numbers_to_the_pass_itself() -> None:
    model = GCN(5, 8, out_channels=3, dropout=0.5)
    expected = copy.deepcopy(model)
    torch.manual_seed(0)
    plain = [expected(X, EDGES) for _ in range(2)]
    torch.manual_seed(0)
    run = CapturedPasses(model)
    for logits in plain:
        assert torch.equal(run(X, EDGES), logits)
    run(X.clone(), EDGES)
    model.eval()
    with torch.no_grad():
        assert torch.equal(run(X, EDGES), expected.eval()(X, EDGES))
    assert captured(run) == [True] * 3
    assert MODES[-2:] == ["error", 0]


def test_state_on_the_host_is_not_frozen() -> None:
    model = Restless()
    run = CapturedPasses(model)
    with torch.no_grad():
        ratio = run(X, EDGES) / run(X, EDGES)
    assert {round(value, 4) for value in ratio.flatten().tolist()} in ({2.0}, {0.5})
    assert captured(run) == [False]
    assert model.seen.item() == model.calls == 2


@pytest.mark.parametrize("changed", ["rate", "weight", "data", "buffer"])
def test_attributes_changed_since_the_recording_count(
    changed: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = GCN(5, 8, out_channels=3, dropout=0.5)
    model.register_buffer("seen", torch.zeros(2))
    run = CapturedPasses(model)
    run(X, EDGES)
    assert captured(run) == [True]
    if changed == "rate":
        model.dropout.p = 0.0
    elif changed == "data":
        weight = next(model.parameters())
        weight.data = weight.detach() + 1
    elif changed == "buffer":
        model.seen = torch.ones(2)
    else:
        next(model.parameters()).requires_grad = False
    run(X, EDGES)
    assert captured(run) == [False]
    assert "dropped a recorded pass" in caplog.text


def test_a_recording_that_fails_drops_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[torch.Generator] = []
    generator = SimpleNamespace(device=torch.device("cpu"), graphsafe_set_state=states.append)
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    model = GCN(5, 8, out_channels=3)
    run = CapturedPasses(model)
    run(X, EDGES)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", None)
    assert captured(run) == [True]
    assert run(X.clone(), EDGES).shape == (4, 3)
    assert captured(run) == [False, False]
    assert len(states) == 1
    assert gc.isenabled()


@pytest.mark.parametrize("obstacle", ["hook", "error"])
def test_an_obstacle_leaves_plain_passes(obstacle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = GCN(5, 8, out_channels=3)
    if obstacle == "hook":
        next(model.children()).register_forward_hook(lambda *_: None)
    else:
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", None)
    run = CapturedPasses(model)
    assert run(X, EDGES).shape == (4, 3)
    assert captured(run) == [False]


def test_a_training_by_replays_is_the_same(
    make_datamodule: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = partial(pl.Trainer, accelerator="cpu", enable_model_summary=False)
    passes, weights = [], []
    for device in ("cuda", "cpu"):
        monkeypatch.setattr(module, "CAPTURING", device)
        monkeypatch.setattr(
            module, "CapturedPasses", lambda m: passes.append(CapturedPasses(m)) or passes[-1]
        )
        torch.manual_seed(0)
        model = GCN(16, 8, out_channels=7, dropout=0.5).eval()
        fit = Fit(trainer, max_epochs=4, progress_bar=False)
        trained = fit(model, make_datamodule(), directory=tmp_path / device)
        weights.append(torch.cat([p.flatten() for p in trained.module.parameters()]))
    assert torch.equal(*weights)
    (run,) = passes
    assert captured(run) == [True, True]
