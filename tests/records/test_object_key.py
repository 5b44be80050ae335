import operator
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch_geometric.nn import models as pyg

from robust_diffusion.attacks import PGD, GradientInjection
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GNNGuard, GraphPDE
from robust_diffusion.records.object_key import object_key
from robust_diffusion.system.hashes import canonical_json


class Mine(nn.Module):
    """A model of somebody's, with a plain option and a function that it was given."""

    def __init__(self, scale: float = 1.0, act: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = scale
        self.act = act
        self.itself = [self]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.act(self.linear(x)) * self.scale


def text(value: Any) -> str:
    return canonical_json(object_key(value), "key")


PAIRS = [
    (Mine(), Mine(2.0)),
    (Mine(act=partial(torch.clamp, min=0)), Mine(act=partial(torch.clamp, min=1))),
    (*(Mine(act=lambda x, slope=slope: torch.maximum(x, slope * x)) for slope in (0.1, 0.2)),),
    (pyg.GCN(3, 4, 2, 2), pyg.GCN(3, 4, 2, 2, dropout=0.5)),
    (pyg.GCN(3, 4, 2, 2), pyg.GCN(3, 4, 2, 2, act="elu")),
    (GraphPDE(3, 4, 2, flow="heat"), GraphPDE(3, 4, 2, flow="heat_plus")),
    (*(GraphPDE(3, 4, 2, solver=Solver("rk4", num_steps=1, adjoint=of)) for of in (True, False)),),
    (GNNGuard(3, 4, 2), GNNGuard(3, 4, 2, gradient="detached")),
    (PGD(num_steps=1), PGD(num_steps=2)),
    (Mine().forward, Mine(2.0).forward),
    (np.sin, np.cos),
    (np.arange(2000), np.arange(2000) ** 2),
    (sp.eye_array(3).tocsr(), 2 * sp.eye_array(3).tocsr()),
    (operator.itemgetter(0), operator.itemgetter(1)),
    (GradientInjection(loss="logit"), GradientInjection(loss="margin")),
]


def doubled(*given: Any) -> Any:
    return [None if of is None else 2 * of for of in given[-1]]


@pytest.mark.parametrize("build", [Mine, lambda: pyg.GCN(3, 4, 2, 2)])
@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_hooks_are_another_key(build: Callable[[], nn.Module], kind: str) -> None:
    model = build()
    before = text(model)
    handle = getattr(list(model.modules())[-1], f"register_{kind}_hook")(doubled)
    assert text(model) != before
    handle.remove()
    assert text(model) == before


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_other_options_are_another_key(first: Any, second: Any) -> None:
    assert text(first) != text(second)


KEYS = """
import threading
import torch
from robust_diffusion import models
from robust_diffusion.records.object_key import object_key
print(object_key([torch.relu, torch.ops.aten.relu, {"a", "b"}, {torch.relu: torch.Generator()}]))
for name in ("GCN", "GAT", "GraphPDE", "GNNGuard", "RobustGCN", "BeltramiGuard"):
    print(object_key(getattr(models, name)(3, 4, 2)))
print(object_key(threading.Lock()))
"""


@pytest.mark.slow
def test_every_model_has_one_key_in_all_processes() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", KEYS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in "12"
    ]
    first, second = (process.communicate()[0].splitlines() for process in running)
    assert len(first) == 8
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


def test_source_counts_and_its_place_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(folder: str, factor: int) -> str:
        path = tmp_path / folder / "some_script.py"
        path.parent.mkdir()
        path.write_text(f"class Model:\n    def forward(self, x):\n        return x * {factor}")
        spec = spec_from_file_location("some_script", path)
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "some_script", module)
        spec.loader.exec_module(module)
        return text(module.Model())

    first, same, other = key("a", 1), key("b", 1), key("c", 2)
    assert first == same != other
