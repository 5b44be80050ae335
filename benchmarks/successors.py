"""Flows published after Beltrami, against their public programs and against Beltrami."""

import time
from functools import partial
from typing import Any

import torch
from measure import by_turns, summary
from networks import epoch_of, load
from torch import nn
from yardstick.straightforward import Net
from yardstick.successors import FLOWS as PUBLIC

from robust_diffusion.data import GraphDataModule
from robust_diffusion.flows import FLOWS
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GraphPDE
from robust_diffusion.operators import set_backend

NAMES = ("beltrami", "hang", "hang_quad", "acmp", "gread", "graphcon", "frond")
SOLVER = Solver("rk4", num_steps=2)
HIDDEN = [128, 128, 128]


def successors(repeat: int) -> dict[str, Any]:
    """Measure the CPU time of one epoch on Cora: 4 layers of width 128, two steps."""
    datamodule = load("cora")
    set_backend("auto")
    views = [datamodule.view(role) for role in ("train", "val")]
    runs = {}
    for name in NAMES:
        ours, public = _networks(name, datamodule)
        runs[name] = epoch_of(ours, *views)
        if public is not None:
            _check_same(ours, public, datamodule)
            runs[f"{name}, public"] = epoch_of(public, *views)
    seconds = by_turns(runs, repeat=repeat, clock=time.process_time)
    return {name: summary(values) for name, values in seconds.items()}


def _networks(name: str, datamodule: GraphDataModule) -> tuple[GraphPDE, Net | None]:
    torch.manual_seed(0)
    widths = datamodule.num_features, HIDDEN, datamodule.num_classes
    scale = {"scale": "graph"} if name.startswith("hang") else {}  # as published
    ours = GraphPDE(
        *widths, flow=partial(FLOWS[name], **scale), solver=SOLVER, num_layers=len(HIDDEN) + 1
    )
    if name not in PUBLIC:
        return ours, None
    public = Net([widths[0], *HIDDEN, widths[2]], PUBLIC[name], "rk4", step_size=1 / 2)
    public.load_state_dict(ours.state_dict())
    return ours, public


def _check_same(ours: nn.Module, public: nn.Module, datamodule: GraphDataModule) -> None:
    """Check that both programs compute the same logits."""
    view = datamodule.view("val")
    with torch.no_grad():
        found, expected = (net.eval()(view.x, view.edge_index) for net in (ours, public))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
