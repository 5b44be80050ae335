"""The compiled kernels round alike whatever vectors a processor has."""

import platform
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robust_diffusion.arithmetic import PORTABLE
from robust_diffusion.flows import Beltrami, Grand, MeanCurvature, PLaplacian
from robust_diffusion.operators import Graph, edge_cosine
from robust_diffusion.operators.kernels import build, calls, compiled, selection
from tests.backends import backend, needs_compiler

NODES, EDGES = 300, 2000

# Compilers contract products with sums or not by the processor that they tune for.
ARCHITECTURES = ["native", "haswell -mtune=znver3", "x86-64 -mprefer-vector-width=128"]


def results() -> list[Tensor]:
    """Of every kernel that sums over channels, forwards and backwards."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)
    x = torch.rand(NODES, 302, generator=generator)
    found = [edge_cosine(x, graph)]
    for cls in (Grand, MeanCurvature, Beltrami, PLaplacian):
        for norm in ("edges", "residual"):
            torch.manual_seed(1)
            flow = cls(40, **({} if cls is Grand else {"gradient_norm": norm}))
            z = torch.rand(NODES, 40, generator=generator).requires_grad_()
            out = flow(torch.tensor(0.0), z, flow.prepare(z, graph))
            out.square().sum().backward()
            assert z.grad is not None
            found += [out.detach(), z.grad]
            found += [p.grad for p in flow.parameters() if p.grad is not None]
    return found


@needs_compiler
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of x86")
def test_shorter_vectors_round_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in PORTABLE.items():  # PyTorch and MKL have long read them
        monkeypatch.setenv(variable, value)
    cached = tmp_path / "cache"
    monkeypatch.setenv("ROBUST_DIFFUSION_CACHE", str(cached))
    compiler, by_architecture = " ".join(build._compiler()), []
    for i, architecture in enumerate(ARCHITECTURES):
        script = tmp_path / f"cxx-{i}"
        script.write_text(f'#!/bin/sh\nexec {compiler} "$@" -march={architecture}\n')
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        monkeypatch.setattr(calls, "load_library", cache(build.load_library.__wrapped__))
        monkeypatch.setattr(selection, "_compiled", cache(compiled.CompiledKernels))
        with backend("compiled"):
            by_architecture.append(results())
    assert len(list(cached.glob("*.so"))) == len(ARCHITECTURES)
    wide, *narrower = by_architecture
    for narrow in narrower:
        assert all(map(torch.equal, wide, narrow))
