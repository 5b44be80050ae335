"""Models, solvers, attacks, certificates and training on a GPU, compared with the CPU."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion import evaluate
from robust_diffusion.certificates.base import Noise
from robust_diffusion.certificates.sampling import noisy_logits
from robust_diffusion.data import GraphDataModule
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS, Solver
from robust_diffusion.models import GCN
from robust_diffusion.operators import Graph
from robust_diffusion.training import Fit, FitResult
from robust_diffusion.training.cuda_graphs import record
from tests.attacks import contract
from tests.certificates.test_sampling import SCHEMES
from tests.graphs import build_flow, clustered_edges, random_signal
from tests.models.test_contract import LABELS, NODES, Case, build, edge_index, every_case, x
from tests.training.test_cuda_graphs import Normed

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


def trained(
    model: nn.Module, data: Any, folder: Path, *, device: str = GPU, **options: Any
) -> tuple[FitResult, Tensor]:
    """Train for 20 epochs by default; return the result and the losses of each epoch."""
    torch.manual_seed(0)
    quiet = {"enable_model_summary": False, "num_sanity_val_steps": 0, "log_every_n_steps": 1}
    fit = Fit(
        partial(pl.Trainer, accelerator=device, **quiet),
        **{"max_epochs": 20, "progress_bar": False} | options,
    )
    logger = CSVLogger(folder, flush_logs_every_n_steps=1)
    result = fit(model, data, logger=logger, directory=folder)
    metrics = pd.read_csv(Path(logger.log_dir, "metrics.csv")).groupby("epoch").first()
    return result, torch.tensor(metrics[["train_loss", "val_loss"]].to_numpy())


RECORDED = "training epochs are launched as one CUDA graph"


@every_case
def test_recorded_epochs_of_a_model_train_it_as_plain_ones(
    case: Case,
    x: Tensor,
    edge_index: Tensor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="robust_diffusion")
    part = torch.arange(NODES) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    losses = {}
    for cuda_graphs in (False, True):
        assert RECORDED not in caplog.text
        torch.manual_seed(0)
        data = Data(x=x.clone(), edge_index=edge_index.clone(), y=LABELS, **masks)
        datamodule = GraphDataModule.from_data(data, transductive=True)
        _, losses[cuda_graphs] = trained(
            build(case),
            datamodule,
            tmp_path / str(cuda_graphs),
            cuda_graphs=cuda_graphs,
            max_epochs=4,
        )
    assert RECORDED in caplog.text
    torch.testing.assert_close(losses[True], losses[False], rtol=0.05, atol=0.02)


class Hurried(Normed):
    """Branches on its features."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) * (1 if x.sum() > 0 else 2)


@pytest.mark.parametrize("build", [partial(Normed, "counts"), Hurried])
def test_what_cannot_be_recorded_runs_as_it_is_written(
    build: Callable[[], nn.Module],
    make_datamodule: Callable[..., Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="robust_diffusion")
    losses = {}
    for cuda_graphs in (False, True):
        torch.manual_seed(0)
        folder = tmp_path / str(cuda_graphs)
        _, losses[cuda_graphs] = trained(
            build(), make_datamodule(), folder, cuda_graphs=cuda_graphs
        )
    assert "training without a CUDA graph" in caplog.text
    assert RECORDED not in caplog.text
    torch.testing.assert_close(losses[True], losses[False], rtol=1e-4, atol=1e-6)


def test_a_recording_that_fails_leaves_random_numbers_and_the_stream() -> None:
    x, stream = torch.ones(100, device=GPU), torch.cuda.current_stream()

    def waiting() -> None:
        F.dropout(x, 0.5)
        torch.cuda.current_stream().synchronize()

    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(F.dropout(x, 0.5))
        with pytest.raises(RuntimeError):
            record(waiting)
        assert torch.cuda.current_stream() == stream
    assert torch.equal(*drawn)
    run = record(lambda: x.add_(1))
    run()
    assert x.unique().tolist() == [3]  # after the warm-up and one replay


def test_training(
    make_datamodule: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="robust_diffusion")
    accuracy = {}
    for device in ("cpu", GPU):
        torch.manual_seed(0)
        model = GCN(16, 8, out_channels=7)
        result, _ = trained(model, make_datamodule(), tmp_path / device, device=device)
        accuracy[device] = result.val_accuracy
        state = torch.load(result.checkpoint)["state_dict"]
        assert all(torch.equal(v, state[k]) for k, v in result.module.state_dict().items())
    assert caplog.text.count(RECORDED) == 1
    assert accuracy[GPU] == pytest.approx(accuracy["cpu"], abs=POINTS)


def test_early_stopping_of_recorded_epochs(
    make_datamodule: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="robust_diffusion")
    options = {"patience": 3, "min_delta": 0.05, "learning_rate": 0.1}
    epochs = {}
    for cuda_graphs in (False, True):
        torch.manual_seed(0)
        result, _ = trained(
            GCN(16, 8, out_channels=7, dropout=0.0),
            make_datamodule(),
            tmp_path / str(cuda_graphs),
            cuda_graphs=cuda_graphs,
            **options,
        )
        epochs[cuda_graphs] = result.epochs
    assert RECORDED in caplog.text
    assert epochs[True] == epochs[False] < 20


def test_evaluate() -> None:
    reports = {}
    for device in ("cpu", GPU):
        model, data, targets = attacked_graph(device)
        options = {"nodes": targets, "budget": contract.BUDGET, "device": device}
        reports[device] = evaluate(model, data, attacks="pgd", **options)
    assert reports[GPU].clean_accuracy == reports["cpu"].clean_accuracy
    robust = {device: report.robust_accuracy for device, report in reports.items()}
    assert robust[GPU] == pytest.approx(robust["cpu"], abs=POINTS)
