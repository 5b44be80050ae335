import importlib
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import models as pyg

from robust_diffusion.attacks import PGD, GradientInjection
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GNNGuard, GraphPDE
from robust_diffusion.records import Record, content
from robust_diffusion.records.content import (
    by_content,
    code_hash,
    object_key,
    user_code,
    user_files,
)
from robust_diffusion.system.hashes import canonical_json


@pytest.mark.slow
def test_all_that_training_and_attacks_import_counts() -> None:
    program = (
        "import sys\n"
        "import robust_diffusion.models.graph_pde\n"
        "from robust_diffusion.attacks import *\n"
        "from robust_diffusion.flows import *\n"
        "from robust_diffusion.models import *\n"
        "from robust_diffusion.training import *\n"
        "print(*(m.split('.')[1] for m in sys.modules if m.startswith('robust_diffusion.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    hashed = {part.partition("/")[0] for part in content.HASHED_PATHS}
    # These report errors and name folders, and compute nothing; of `system`, arithmetic alone does.
    assert set(done.stdout.split()) - {"checks", "config", "errors"} == hashed


@pytest.mark.parametrize("name", ["flow.py", "kernel.cpp", "rows.h"])
def test_code_and_the_arithmetic_of_its_libraries_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(content, "_SOURCE", tmp_path)
    monkeypatch.setattr(content, "HASHED_PATHS", (name,))
    hashes = []
    for text in ("x = 1;", "x = 2;"):
        (tmp_path / name).write_text(text)
        hashes.append(code_hash.__wrapped__())
    monkeypatch.setenv("MKL_CBWR", "other arithmetic")
    assert len({*hashes, code_hash.__wrapped__()}) == 3


FLOW = """
from robust_diffusion.flows import Heat
from .sub.rates import RATE

class MyFlow(Heat):
    def forward(self, t, z, graph):
        return RATE * super().forward(t, z, graph)
"""

PACKAGE = {
    "own/__init__.py": "from own.mine import MyFlow",
    "own/mine.py": FLOW,
    "own/sub/rates.py": "from ..base import RATE",  # in a folder without __init__.py
    "own/base.py": "RATE = 1.0",
    "own/unused.py": "",
    "beside.py": "",
}

Write = Callable[[Mapping[str, str]], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes modules of the user's, as a new process would find them."""
    monkeypatch.syspath_prepend(tmp_path)

    def files(texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in [name for name in sys.modules if name.split(".")[0] == "own"]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        content._module_hashes.cache_clear()

    return files


@pytest.mark.parametrize("target", ["own.mine.MyFlow", "own.MyFlow", "own.mine.MyFlow.forward"])
def test_modules_of_a_package_are_followed_and_count(write: Write, target: str) -> None:
    config = {"model": {"flows": [{"_target_": target}]}}
    write(PACKAGE)
    before = user_code(config)
    assert list(before) == ["own", "own.base", "own.mine", "own.sub.rates"]
    write({"own/unused.py": "x = 1"})
    assert user_code(config) == before
    write({"own/base.py": "RATE = 2.0"})
    assert user_code(config) != before


def test_files_count_by_content_and_not_place(tmp_path: Path) -> None:
    configs = [
        {"model": {"parts": [{"weights": str(tmp_path / name)}]}} for name in ("a.pt", "b.pt")
    ]
    configs.append({"attacks": {"given": {"data_dir": str(tmp_path), "path": "a.pt"}}})
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_bytes(b"one")
    before = [*map(by_content, configs)]
    assert before[0] == before[1]
    assert [[*user_files(config)] for config in configs[1:]] == [
        ["model.parts.0.weights"],
        ["attacks.given.path"],
    ]
    (tmp_path / "a.pt").write_bytes(b"two")
    assert [new == old for new, old in zip(map(by_content, configs), before, strict=True)] == [
        False,
        True,
        False,
    ]


@pytest.mark.slow
def test_an_edited_flow_is_run_again(
    write: Write, cli: Callable[..., Any], tiny_clean: list[str]
) -> None:
    """Neither the record nor the weights of the old code are served."""

    def run(rate: float) -> Record:
        write(PACKAGE | {"own/base.py": f"RATE = {rate}"})
        flow = ("flow=heat", "flow._target_=own.mine.MyFlow")
        found: Record = cli(*flow, "logger=none", *tiny_clean).records[-1]
        return found

    first, again, edited = run(1.0), run(1.0), run(-30.0)
    assert (again.run, again.time) == (first.run, first.time)
    assert edited.run != first.run
    assert edited.reused == []
    changed = set(edited.user_code.items()) - set(first.user_code.items())
    assert [module for module, _ in changed] == ["own.base"]


def test_modules_of_one_folder_are_followed_though_they_are_broken(write: Write) -> None:
    write({"alone.py": "import beside, json, torch", "beside.py": "def", "unused.py": ""})
    given = {"_target_": "hydra.utils.get_class", "path": "alone.MyAttack"}
    assert list(user_code({"attack": given})) == ["alone", "beside"]


@pytest.mark.parametrize(
    "config",
    [
        *({"_target_": of} for of in ("robust_diffusion.flows.Heat", "no.such.module")),
        {"data": {"name": "cora", "source": {"folder": {"path": "cora"}}}},
        {"model": {"folder": "folder/sub", "_target_": "folder/sub/log.csv"}},
        {"training": {"trainer": {"default_root_dir": "folder/sub/log.csv"}}},
        {"model": {"weights": "missing.pt", "rate": 0.5, "bad": "x\0.pt", "long": "x." * 999}},
    ],
)
def test_names_that_look_like_files_or_code_stay(config: dict[str, Any]) -> None:
    Path("folder/sub").mkdir(parents=True)
    Path("cora").mkdir()
    Path("folder/sub/log.csv").touch()
    assert by_content(config) == config
    assert user_files(config) == {}


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
    (GraphPDE(3, 4, out_channels=2, flow="heat"), GraphPDE(3, 4, out_channels=2, flow="heat_plus")),
    (
        *(
            GraphPDE(3, 4, out_channels=2, solver=Solver("rk4", num_steps=1, adjoint=of))
            for of in (True, False)
        ),
    ),
    (GNNGuard(3, 4, out_channels=2), GNNGuard(3, 4, out_channels=2, gradient="detached")),
    (PGD(num_steps=1), PGD(num_steps=2)),
    (torch.relu, torch.tanh),
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
    assert text(first) == text(first) != text(second)


@pytest.mark.parametrize("value", [np.arange(3), operator.itemgetter(0), Mine().forward])
def test_what_cannot_be_described_is_never_the_same(value: Any) -> None:
    assert text(value) != text(value)


KEYS = """
import threading
import torch
from robust_diffusion import models
from robust_diffusion.records.content import object_key
print(object_key([torch.relu, torch.ops.aten.relu, {"a", "b"}, torch.device("cpu")]))
for name in ("GCN", "GAT", "GraphPDE", "GNNGuard", "RobustGCN", "BeltramiGuard"):
    print(object_key(getattr(models, name)(3, 4, out_channels=2)))
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
