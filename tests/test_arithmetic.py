"""Arithmetic that rounds alike on every machine."""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from robust_diffusion.errors import RobustDiffusionError
from robust_diffusion.system import arithmetic
from robust_diffusion.system.arithmetic import PORTABLE, set_up_arithmetic
from tests.backends import needs_compiler

ROOT = Path(__file__).parents[1]

DIGEST = "c1c817035a6b6d95"
"""Of all weights and perturbed graphs below, by torch 2.13.0 and this project's kernels.

A change of what is computed, or of the order of a sum, has another; the test's message tells it.
Found on AMD's Zen 5, and in parts on an emulated Haswell of Intel's.
"""

CELLS = (
    ["flow=heat,beltrami,p_laplacian", "fidelity=paper,released", "threat.seeding=cell"],
    ["model=mlp,gat,appnp,robust_gcn,gnn_guard,gcn_svd,beltrami_guard", "threat.seeding=cell"],
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
    for options in CELLS:
        subprocess.run(
            [
                *(sys.executable, "-m", "robust_diffusion.run", "-m", *options),
                *("scale=smoke", "training.max_epochs=6", "logger=none"),
            ],
            cwd=tmp_path,
            env=os.environ | PORTABLE,
            capture_output=True,
            check=True,
        )
    assert digest(tmp_path / "outputs" / "store") == DIGEST


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(7, 5, 3), (1, 64, 1), (0, 3, 2), (4, 0, 2)]
)
def test_products_are_those_of_matrices(
    rows: int, inner: int, columns: int, dtype: torch.dtype
) -> None:
    left, right = torch.rand(rows, inner, dtype=dtype), torch.rand(inner, columns, dtype=dtype)
    bias = torch.rand(columns, dtype=dtype)
    for x, y in [(left, right), (left.T.contiguous().T, right.T.contiguous().T)]:
        torch.testing.assert_close(arithmetic._mm(x, y), left @ right)
        torch.testing.assert_close(arithmetic._addmm(bias, x, y), bias + left @ right)
        torch.testing.assert_close(
            arithmetic._addmm(bias, x, y, beta=2, alpha=0.5), 2 * bias + 0.5 * (left @ right)
        )


def test_what_openblas_cannot_multiply_is_left_to_pytorch() -> None:
    ones = torch.ones(2, 3)
    for dtype in (torch.int64, torch.bfloat16):
        assert arithmetic._mm(ones.to(dtype), ones.T.to(dtype)).tolist() == [[3, 3], [3, 3]]
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        arithmetic._mm(ones, ones)
    with pytest.raises(RuntimeError, match="same dtype"):
        arithmetic._mm(ones, ones.T.double())


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


@pytest.mark.slow
def test_roots_are_those_that_the_standard_demands() -> None:
    in_portable_arithmetic("""
import numpy as np, torch
from robust_diffusion.system.arithmetic import set_up_arithmetic
set_up_arithmetic()
for dtype in (torch.float32, torch.float64):
    x = torch.rand(300, 70, dtype=dtype)
    for y in (x, x.T, x[::2, 1:], x[0, 0], x[:0]):
        root = torch.from_numpy(np.asarray(np.sqrt(y.numpy())))
        assert torch.equal(y.sqrt(), root), y.shape
        assert torch.equal(y**0.5, root)
        assert torch.equal(y.clone().sqrt_(), root)
        assert torch.equal(y.clone().pow_(0.5), root)
        torch.testing.assert_close(y.atan(), torch.from_numpy(np.asarray(np.arctan(y.numpy()))))
        assert torch.equal(y.clone().arctan_(), y.atan())
    leaf = x.clone().requires_grad_()
    leaf.sqrt().sum().backward()
    assert torch.equal(leaf.grad, 1 / (2 * torch.from_numpy(np.sqrt(x.numpy()))))
    adam = torch.optim.Adam([leaf], lr=1, betas=(0.0, 0.5), eps=0)
    leaf.grad, before = x.clone(), leaf.detach().clone()
    adam.step()
    root = torch.from_numpy(np.sqrt((x.square() * 0.5).numpy())) / 0.5**0.5
    assert torch.equal(leaf.detach(), before.addcdiv_(x, root, value=-1))
assert torch.tensor(-1.0).sqrt().isnan()
""")


def test_what_has_no_exact_root_is_left_to_pytorch() -> None:
    in_portable_arithmetic("""
import torch
given = [torch.arange(1, 5), torch.rand(4).bfloat16(), torch.rand(4) + 1j, torch.rand(4) > 0.5]
functions = [torch.sqrt, torch.atan, lambda x: x**0.5, lambda x: x**2, lambda x: x**1.5]
before = [f(x) for x in given for f in functions]
from robust_diffusion.system.arithmetic import set_up_arithmetic
set_up_arithmetic()
for now, was in zip([f(x) for x in given for f in functions], before, strict=True):
    assert now.dtype == was.dtype and torch.equal(now, was)
x = torch.rand(4)
assert torch.equal(x**3, x * x * x)
assert torch.arange(4).pow_(2).tolist() == [0, 1, 4, 9]
try:
    torch.arange(4).sqrt_()
except RuntimeError as error:
    assert "can't be cast" in str(error)
else:
    raise AssertionError("whole numbers were cut off")
""")


def test_the_environment_chooses_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[str] = []
    monkeypatch.setattr(arithmetic, "_replace", lambda *given: replaced.extend(dict(given)))
    monkeypatch.setattr(arithmetic, "_require_openblas", lambda: None)
    for variable, value in PORTABLE.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv(arithmetic.ROOTS)
    set_up_arithmetic()
    assert replaced == ["mm", "addmm"]
    monkeypatch.setenv(arithmetic.ROOTS, "exact")
    set_up_arithmetic()
    assert set(replaced) == {*arithmetic.PRODUCTS, *arithmetic.ROOTS_AND_TANGENTS}
    monkeypatch.setenv(arithmetic.ROOTS, "fast")
    with pytest.raises(RobustDiffusionError, match="ROOTS=fast"):
        set_up_arithmetic()
    replaced.clear()
    for variable in PORTABLE:
        monkeypatch.delenv(variable)
    set_up_arithmetic()
    assert replaced == []


def test_another_library_of_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        def select(self, **_: str) -> "Found":
            return self

        def info(self) -> list[dict[str, str]]:
            return [{"internal_api": "mkl", "filepath": "libmkl_rt.so"}]

    for variable, value in PORTABLE.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(arithmetic, "ThreadpoolController", Found)
    with pytest.raises(
        RobustDiffusionError, match="multiplies matrices by mkl for all, not by openblas"
    ):
        set_up_arithmetic()


def test_make_sets_the_same_arithmetic() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    section = makefile[makefile.index("ifdef PORTABLE") :].partition("endif")[0]
    assert dict(re.findall(r"export (\w+) := (\w+)", section)) == PORTABLE
