"""What runs on a graphics card, on one that is pretended: devices are not mixed, waits counted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import pytorch_lightning as pl
from functools import partial
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy
from robust_diffusion.models import GCN
from robust_diffusion.training import Fit
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.certificates.noise import Noise
from robust_diffusion.certificates.sampling import noisy_logits
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS, Solver
from tests.attacks import contract
from tests.card import CARD, card
from tests.certificates.test_sampling import SCHEMES
from tests.graphs import build_flow, clustered_edges, random_signal
from robust_diffusion.operators import Graph
from tests.models.test_contract import LABELS, Case, build, edge_index, every_case, x

__all__ = ["edge_index", "x"]
pytestmark = pytest.mark.devices


@every_case
def test_a_model_trains_without_waiting(case: Case, x: Tensor, edge_index: Tensor) -> None:
    model = build(case).train()

    def step(device: str) -> Tensor:
        logits = model(*given[device])
        F.cross_entropy(logits, labels[device]).backward()
        return logits.detach()

    given, labels = {"cpu": (x, edge_index)}, {"cpu": LABELS}
    torch.manual_seed(0)
    with card() as waits:
        model = model.to(CARD)
        given[CARD], labels[CARD] = (x.to(CARD), edge_index.to(CARD)), LABELS.to(CARD)
        step(CARD)
        print("FIRST", waits)
        waits.clear()
        step(CARD)
        print("COUNT", case, dict(waits))
        first = model.eval()(*given[CARD]).cpu()
        model = model.cpu()
    torch.testing.assert_close(model(x, edge_index), first)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("method", sorted(FIXED_STEP_METHODS | ADAPTIVE_METHODS - {"scipy_solver"}))
def test_a_solve(method: Any, adjoint: bool) -> None:
    flow, z = build_flow(Beltrami), random_signal(nodes=13)
    solver = Solver(method, adjoint=adjoint)
    with card() as waits:
        flow.to(CARD)
        graph = Graph.from_edge_index(clustered_edges().to(CARD), num_nodes=13, dtype=z.dtype)
        there = z.to(CARD).requires_grad_()
        for _ in range(2):
            waits.clear()
            nfe = flow.nfe if hasattr(flow, "nfe") else None
            end = solver(flow, there, graph)
            fw = dict(waits)
            waits.clear()
            end.sum().backward()
        print("COUNT", method, adjoint, fw, "BW", dict(waits))
        flow.cpu()


@pytest.mark.parametrize("name", contract.NAMES)
def test_an_attack(name: str) -> None:
    import copy
    g, model = contract.graph(), copy.deepcopy(contract.trained())
    counts = []
    key = next((k for k in ("num_steps", "block_size") if k in contract.options(name)), None)
    for extra in (4, 8):
        with card() as waits:
            there = Data(x=g.x.to(CARD), edge_index=g.edge_index.to(CARD))
            m, targets = copy.deepcopy(model).to(CARD), g.index_test.to(CARD)
            waits.clear()
            attack = contract.make(name, **({"num_steps": extra} if key == "num_steps" else {}))
            out = contract.run(attack, model=m, data=there, targets=targets)
            counts.append(Counter(waits))
            out = PerturbedGraph(out.x.cpu(), out.edge_index.cpu(), out.num_original_nodes)
    print("COUNT", name, key, [c.total() for c in counts], counts[1] - counts[0])
    assert contract.same(out, contract.run(attack))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_certificate(scheme: Any) -> None:
    import copy
    g = contract.graph()
    with card() as waits, torch.no_grad():
        m, x, e = copy.deepcopy(contract.trained()).to(CARD), g.x.to(CARD), g.edge_index.to(CARD)
        waits.clear()
        there = noisy_logits(m, x, e, scheme, Noise(0, "votes"), [0, 1])
        print("COUNT", scheme.name, waits)
        there = there.cpu()
        here = noisy_logits(contract.trained(), g.x, g.edge_index, scheme, Noise(0, "votes"), [0, 1])
    torch.testing.assert_close(here, there)


class OnTheCard(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        pass


def test_epoch(make_datamodule: Any, tmp_path: Any) -> None:
    counts = []
    for epochs in (2, 4):
        with card() as waits:
            strategy = SingleDeviceStrategy(torch.device(CARD, 0), accelerator=OnTheCard())
            fit = Fit(partial(pl.Trainer, strategy=strategy, num_sanity_val_steps=0, log_every_n_steps=1, enable_model_summary=False), max_epochs=epochs)
            torch.manual_seed(0)
            result = fit(GCN(16, 8, 7), make_datamodule(), directory=tmp_path)
            counts.append(Counter(waits))
    print("COUNT", [c.total() for c in counts], counts[1] - counts[0], "ALL", counts[0])
    torch.manual_seed(0)
    fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=4)
    here = fit(GCN(16, 8, 7), make_datamodule(), directory=tmp_path)
    print(here.val_accuracy, result.val_accuracy)
