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

from robust_diffusion.arithmetic import PORTABLE
from tests.backends import needs_compiler

ROOT = Path(__file__).parents[1]

DIGEST = "258e77ce2805912b"
"""Of all weights and perturbed graphs below, by torch 2.13.0 and this project's kernels.

Whoever changes what is computed, or the order of a sum, finds the new one in the test's message.
Whoever finds another on a machine of another make has found an error.
"""

CELLS = (
    ["flow=heat,beltrami,p_laplacian", "fidelity=paper,released"],
    ["model=mlp,gat,appnp,robust_gcn,gnn_guard,gcn_svd,beltrami_guard"],
)


def digest(store: Path) -> str:
    """Of every tensor in every file, in whatever order."""
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
def test_portable_arithmetic_has_these_bits_on_every_machine(tmp_path: Path) -> None:
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


def test_make_sets_the_same_arithmetic() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    section = makefile[makefile.index("ifdef PORTABLE") :].partition("endif")[0]
    assert dict(re.findall(r"export (\w+) := (\w+)", section)) == PORTABLE
