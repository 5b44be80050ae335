"""Models, solvers, attacks, certificates and training on a GPU, compared with the CPU."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion import evaluate
from robust_diffusion.certificates.base import Noise
from robust_diffusion.certificates.sampling import noisy_logits
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS, Solver
from robust_diffusion.models import GCN
from robust_diffusion.operators import Graph
from robust_diffusion.training import Fit
from robust_diffusion.training.cuda_graphs import CapturedPasses
from tests.attacks import contract
from tests.certificates.test_sampling import SCHEMES
from tests.graphs import build_flow, clustered_edges, random_signal
from tests.models.test_contract import LABELS, NODES, Case, build, edge_index, every_case, x
from tests.training.test_cuda_graphs import Restless

__all__ = ["edge_index", "x"]
pytestmark = pytest.mark.gpu

GPU = "cuda"
POINTS = 0.05
"""Most that an accuracy may differ: rounding decides ties between edges, and sums have no order."""
RETRAINED = {"meta_grbcd": 0.1}
"""The same where models are trained anew, from weights that a device draws as it does."""

METHODS = sorted(FIXED_STEP_METHODS | ADAPTIVE_METHODS)


def attacked_graph(device: str) -> tuple[torch.nn.Module, Data, Tensor]:
    """Return the contract's model, graph and target nodes on a device."""
    graph = contract.graph()
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y).to(device)
    return deepcopy(contract.trained()).to(device), data, graph.index_test.to(device)


@every_case
def test_logits_and_gradients_of_a_model(case: Case, x: Tensor, edge_index: Tensor) -> None:
    computed = {}
    for device in ("cpu", GPU):
        model = build(case).to(device)
        features = x.to(device, copy=True).requires_grad_()
        logits = model(features, edge_index.to(device))
        F.cross_entropy(logits, LABELS.to(device)).backward()
        computed[device] = logits.detach().cpu(), features.grad.cpu()
    torch.testing.assert_close(computed[GPU], computed["cpu"])


@pytest.mark.filterwarnings("ignore:Functional iteration did not converge")
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_solutions_and_gradients_of_a_solver(method: Any, *, adjoint: bool) -> None:
    loose = {"rtol": 0.01, "atol": 0.01} if method in ADAPTIVE_METHODS else {}
    computed = {}
    for device in ("cpu", GPU):
        flow = build_flow(Beltrami).to(device)
        start = random_signal(nodes=NODES).to(device).requires_grad_()
        edges = clustered_edges().to(device)
        graph = Graph.from_edge_index(edges, num_nodes=NODES, dtype=start.dtype)
        end = Solver(method, adjoint=adjoint, **loose).solve(flow, start, graph)
        end.sum().backward()
        computed[device] = end.detach().cpu(), start.grad.cpu()
    torch.testing.assert_close(computed[GPU], computed["cpu"])


@pytest.mark.parametrize("name", contract.NAMES)
def test_an_attack_keeps_its_budget_and_does_as_much(name: str) -> None:
    accuracy = {}
    for device in ("cpu", GPU):
        attack = contract.make(name)
        model, data, targets = attacked_graph(device)
        perturbed = contract.run(attack, model=model, data=data, targets=targets)
        assert perturbed.x.device.type == device
        on_cpu = replace(perturbed, x=perturbed.x.cpu(), edge_index=perturbed.edge_index.cpu())
        assert not contract.broken(attack, on_cpu, contract.BUDGET)
        with torch.no_grad():
            predictions = model(perturbed.x, perturbed.edge_index)[targets].argmax(-1)
        accuracy[device] = (predictions == data.y[targets]).double().mean().item()
    assert accuracy[GPU] == pytest.approx(accuracy["cpu"], abs=RETRAINED.get(name, POINTS))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_logits_of_smoothed_draws(scheme: Any) -> None:
    draw = partial(noisy_logits, scheme=scheme, noise=Noise(0, "votes"), draws=[0, 1])
    computed = {}
    for device in ("cpu", GPU):
        model, data, _ = attacked_graph(device)
        with torch.no_grad():
            computed[device] = draw(model, data.x, data.edge_index).cpu()
    torch.testing.assert_close(computed[GPU], computed["cpu"])


@every_case
def test_a_captured_pass_changes_a_model_as_a_plain_one(
    case: Case, x: Tensor, edge_index: Tensor
) -> None:
    found = {}
    given, labels = (x.to(GPU), edge_index.to(GPU)), LABELS.to(GPU)
    for way in ("plain", "captured"):
        model = build(case).to(GPU).train()
        run = CapturedPasses(model) if way == "captured" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(0)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(run(*given), labels).backward()
            optimizer.step()
        with torch.no_grad():
            model.eval()
            run(*given)
            found[way] = run(*given).clone(), *[value.clone() for value in model.buffers()]
        if isinstance(run, CapturedPasses):
            assert run._recorded.keys() == run._passes.keys()
    for captured, plain in zip(found["captured"], found["plain"], strict=True):
        torch.testing.assert_close(captured, plain, rtol=1e-4, atol=1e-6)


class Hurried(Restless):
    """Branches on its features."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else x[:, :3]


class Waiting(Restless):
    """Fails while it is recorded, having passed every trial before."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        torch.cuda.current_stream().synchronize()
        return F.dropout(self.linear(x), 0.5)


def test_a_recording_that_fails_leaves_random_numbers_and_the_stream() -> None:
    model, x = Waiting().to(GPU), torch.rand(5, 5, device=GPU)
    edge_index = torch.zeros(2, 0, dtype=torch.long, device=GPU)
    stream = torch.cuda.current_stream()
    run, drawn = CapturedPasses(model), {}
    for way in (model, run):
        torch.manual_seed(0)
        drawn[way] = [way(x, edge_index) for _ in range(3)]
    assert torch.cuda.current_stream() == stream
    assert not run._recorded
    for found, expected in zip(drawn[run], drawn[model], strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("cls", [Restless, Hurried])
def test_what_cannot_be_captured_runs_as_it_is_written(cls: type[Restless]) -> None:
    model, x = cls().to(GPU), torch.rand(5, 5, device=GPU)
    run = CapturedPasses(model)
    edge_index = torch.zeros(2, 0, dtype=torch.long, device=GPU)
    for _ in range(2):
        expected = model(x, edge_index)
        model.calls -= 1
        torch.testing.assert_close(run(x, edge_index), expected)
    assert run._passes
    assert not run._recorded


def test_training(
    make_datamodule: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    accuracy = {}
    for device in ("cpu", GPU):
        torch.manual_seed(0)
        trainer = partial(
            pl.Trainer, accelerator=device, enable_model_summary=False, num_sanity_val_steps=0
        )
        fit = Fit(trainer, max_epochs=20, progress_bar=False)
        with caplog.at_level("DEBUG"):
            trained = fit(
                GCN(16, 8, out_channels=7), make_datamodule(), directory=tmp_path / device
            )
        accuracy[device] = trained.val_accuracy
    assert caplog.text.count("a pass as a CUDA graph") == 2  # of training, of validation
    assert accuracy[GPU] == pytest.approx(accuracy["cpu"], abs=POINTS)


def test_evaluate() -> None:
    reports = {}
    for device in ("cpu", GPU):
        model, data, targets = attacked_graph(device)
        options = {"nodes": targets, "budget": contract.BUDGET, "device": device}
        reports[device] = evaluate(model, data, attacks="pgd", **options)
    assert reports[GPU].clean_accuracy == reports["cpu"].clean_accuracy
    robust = {device: report.robust_accuracy for device, report in reports.items()}
    assert robust[GPU] == pytest.approx(robust["cpu"], abs=POINTS)
