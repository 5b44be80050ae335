"""Arithmetic that rounds alike on every machine."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from robust_diffusion.system.portable import PORTABLE
from tests.backends import needs_compiler

DIGEST = "c1c817035a6b6d95"
"""Of all weights and perturbed graphs below, by torch 2.13.0 and this project's kernels.

A change of what is computed, or of the order of a sum, has another; the test's message tells it.
Found on AMD's Zen 5, and in parts on an emulated Haswell of Intel's.
"""

RUNS = (
    ["flow=heat,beltrami,p_laplacian", "fidelity=paper,released", "threat.seeding=run"],
    ["model=mlp,gat,appnp,robust_gcn,gnn_guard,gcn_svd,beltrami_guard", "threat.seeding=run"],
)


def digest(store: Path) -> str:
    """A hash of every tensor in every file, in any order."""
    found = []
    for path in store.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118
                content = file.get_tensor(key).contiguous().numpy().tobytes()
                found.append(hashlib.sha256(key.encode() + content).hexdigest())
    assert found
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()[:16]


@needs_compiler
@pytest.mark.slow
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="portable arithmetic is that of x86 processors with AVX2",
)
@pytest.mark.skipif(
    torch.__version__.split("+")[0] != "2.13.0" or platform.python_version_tuple()[1] != "11",
    reason="the digest is that of the pinned versions",
)
def test_bits_are_those_of_all_machines(tmp_path: Path) -> None:
    for options in RUNS:
        subprocess.run(
            [
                *(sys.executable, "-m", "robust_diffusion", "-m", *options),
                *("scale=smoke", "training.max_epochs=6", "logger=none", "mlp=false"),
            ],
            cwd=tmp_path,
            env=os.environ | PORTABLE,
            capture_output=True,
            check=True,
        )
    assert digest(tmp_path / "outputs" / "store") == DIGEST


def in_portable_arithmetic(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=os.environ | PORTABLE,
        capture_output=True,
        text=True,
        check=False,
    )
    if "openblas for Haswell; install" in done.stderr:
        pytest.skip("NumPy has no OpenBLAS for Haswell on this machine")
    assert done.returncode == 0, done.stderr


def test_layers_and_gradients_multiply_by_openblas() -> None:
    in_portable_arithmetic("""
import torch
from robust_diffusion.system.arithmetic import set_up_arithmetic
set_up_arithmetic()
set_up_arithmetic()
x, layer = torch.rand(300, 302, requires_grad=True), torch.nn.Linear(302, 64)
y = layer(x)
y.square().sum().backward()
weight, d_y = layer.weight.detach().numpy(), 2 * y.detach().numpy()
assert (y.detach().numpy() == x.detach().numpy() @ weight.T + layer.bias.detach().numpy()).all()
assert (x.grad.numpy() == d_y @ weight).all()
assert (layer.weight.grad.numpy() == d_y.T @ x.detach().numpy()).all()
""")
