"""Triton's kernels, run by its interpreter, against the equations as `torch` evaluates them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from robust_diffusion.flows import Beltrami, Flow, Grand, MeanCurvature, PLaplacian
from robust_diffusion.operators import Graph, edge_dot, kernels_for, row_softmax
from tests.backends import backend
from tests.operators.test_kernels import (
    TIME,
    assert_backend_right,
    evaluate,
    inputs_of,
    signal,
    small_flow,
)

pytest.importorskip("triton", minversion="3.7")  # older interpreters fail on newer NumPy

NODES, WIDTH = 5, 3
BOUNDS: dict[str, Any] = {"gradient_norm": "edges", "gradient_floor": 0.05, "gradient_ceiling": 1.3}
RESIDUAL = {"gradient_norm": "residual", "gradient_floor": 0.002, "gradient_ceiling": 0.1}
CASES: list[tuple[type[Flow], dict[str, Any], str]] = [
    (Beltrami, BOUNDS | {"heads": 3, "attention_channels": 9}, "hub"),
    (Beltrami, RESIDUAL | {"heads": 1, "attention_channels": 3, "lipschitz": True}, "hub"),
    (MeanCurvature, {"heads": 2, "attention_channels": 4}, "unweighted hub"),
    (PLaplacian, {"p": 3.0, "heads": 1, "attention_channels": 2}, "hub"),
    (Grand, {"heads": 2, "attention_channels": 4}, "hub"),
]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the hub is then several blocks."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        from robust_diffusion.operators.kernels import triton_kernels

        monkeypatch.setattr(triton_kernels, "MOST_EDGES", 4)


@pytest.mark.parametrize(("cls", "options", "kind"), CASES)
def test_flows_and_their_gradients(cls: type[Flow], options: Any, kind: str) -> None:
    flow = small_flow(cls, WIDTH, **options).train()  # with a step of the power iteration
    assert_backend_right("triton", lambda dtype: evaluate(flow, kind, dtype))


@pytest.mark.parametrize("options", [BOUNDS, RESIDUAL], ids=["edges", "residual"])
def test_the_gradient_of_a_diffusion_is_that_of_differences(options: Any) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    flow = small_flow(Beltrami, 2, heads=2, attention_channels=2, **options).double()
    weight = torch.linspace(0.2, 1.5, graph.num_edges, dtype=torch.float64).requires_grad_()

    def diffuse(z: Tensor, weight: Tensor) -> Tensor:
        return flow(TIME, z, replace(graph, weight=weight))

    with backend("triton"):
        inputs = signal(2, 2).requires_grad_(), weight
        assert gradcheck(diffuse, inputs, fast_mode=True, check_undefined_grad=False)


def test_dots_and_softmax_of_an_edge() -> None:
    graph, _ = inputs_of("hub", torch.float64)
    wide = signal(NODES, 300)[:, None]  # more channels than a block
    scores = 100 * signal(graph.num_edges, 3)
    with backend("triton"):
        actual = edge_dot(wide, wide, graph), row_softmax(scores, graph)
    with backend("torch"):
        expected = edge_dot(wide, wide, graph), row_softmax(scores, graph)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_a_diffusion_is_two_launches_and_its_gradient_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from robust_diffusion.operators.kernels import triton_kernels

    launched: list[str] = []

    def launch(kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
        launched.append(kernel.__name__)

    monkeypatch.setattr(triton_kernels, "launch", launch)
    graph, _ = inputs_of("unweighted hub", torch.float64)
    z = signal(NODES, WIDTH).requires_grad_()
    with backend("triton"):
        small_flow(Beltrami, WIDTH, lipschitz=False).double()(TIME, z, graph).sum().backward()
    assert launched == [
        "_attend",
        "_diffuse",
        "_diffuse_backward",
        "_attend_backward",
        "_pull_back",
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(("cls", "options", "kind"), CASES)
def test_a_gpu_computes_what_the_cpu_does(cls: type[Flow], options: Any, kind: str) -> None:
    flow = small_flow(cls, WIDTH, **options).train()
    for dtype in (torch.float64, torch.float32):
        with backend("torch"):
            expected = evaluate(flow, kind, dtype)
        with backend("triton"):
            assert type(kernels_for(torch.ones(1, device="cuda"))).__name__ == "TritonKernels"
            actual = evaluate(flow, kind, dtype, "cuda")
        torch.testing.assert_close(actual, expected)


COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from robust_diffusion.operators import Graph
from robust_diffusion.operators.kernels import Modulation, triton_kernels

TYPES = {torch.float32: "*fp32", torch.int32: "*i32", int: "i32"}

def launch(kernel, programs, arguments):
    values = {name: arguments.get(name) for name in kernel.arg_names}
    constants = {p.name for p in kernel.params if p.is_constexpr or values[p.name] is None}
    kinds = {k: TYPES[getattr(v, "dtype", int)] for k, v in values.items() if k not in constants}
    source = ASTSource(
        kernel,
        {k: kinds.get(k, "constexpr") for k in values},
        {k: values[k] for k in constants},
    )
    assert triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"]
    print(kernel.__name__)

triton_kernels.launch = launch
kernels = triton_kernels.TritonKernels()
graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
z, weight = torch.ones(2, 7), torch.ones(4)
projected = torch.ones(2, 1, 3, 5), torch.ones(3, 5)
kernels.dots(z, z, graph)
kernels.softmax(torch.ones(4, 3), weight, graph)
attended = kernels.attend(*projected, weight, graph)
kernels.attend_backward(weight, attended, with_weight=True)
for modulation in (Modulation(-1, -1, False, 0.1, float("inf")), Modulation(0, 2, True, 0.1, 2)):
    out, diffused = kernels.diffuse(z, *projected, weight, graph, modulation)
    kernels.diffuse_backward(out, diffused, with_weight=modulation.residual)
matrix, vector = torch.ones(7, 7), torch.ones(7)
for iterate in (False, True):
    kernels.spectral([matrix], [vector], [vector], iterate=iterate)
kernels.spectral_backward(matrix[None], matrix[None], vector[None], vector[None], vector[:1])
"""


@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    env = dict(os.environ, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    command = [sys.executable, "-c", COMPILE]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split()) == 18
