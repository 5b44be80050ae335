"""Which backend is taken, and how the compiled one is built."""

import logging
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import current_backend, kernels_for, set_backend
from robust_diffusion.operators.kernels import build, compiled, selection
from tests.backends import needs_compiler
from tests.graphs import without_type_checks

ONES = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has chosen nothing and loaded nothing, with a cache of its own."""
    monkeypatch.setenv("ROBUST_DIFFUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(selection._Setting, "asked", "auto")
    monkeypatch.setattr(selection._Setting, "effective", None)
    monkeypatch.setattr(selection, "_compiled", cache(compiled.CompiledKernels))
    monkeypatch.setattr(compiled, "load_library", cache(build.load_library.__wrapped__))


@pytest.fixture
def without_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The compiler without its optimisation; returns how often it has compiled so far."""
    calls, real = tmp_path / "calls", " ".join(build._compiler())
    monkeypatch.setenv(
        "CXX", script(tmp_path / "cxx", f'echo "$@" >> {calls}', f'exec {real} "$@" -O0')
    )

    def count() -> int:
        lines = calls.read_text().splitlines() if calls.exists() else []
        return sum("-DREAL=" in line for line in lines)

    return count


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.usefixtures("without_compiler")
def test_without_a_compiler(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):  # as in the runs of a sweep
        assert set_backend("auto") == "torch"
        assert current_backend() == "torch"
        assert kernels_for(ONES) is None
    (warning,) = warnings_of(caplog)
    assert "no C++ compiler found" in warning
    with pytest.raises(ConfigError, match="backend=compiled"):
        set_backend("compiled")
    assert current_backend() == "torch"


@pytest.mark.parametrize(
    "case",
    [
        ("echo 'cc1plus: warning: odd' >&2; echo 'x.h:1: error: bad' >&2; exit 1", "x.h:1: error"),
        ("exit 1", "failed"),
        ("exec sleep 60", "timed out"),
        (None, "no such compiler"),
    ],
)
def test_a_broken_compiler_is_one_line(
    case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body, reason = case
    monkeypatch.setenv("CXX", script(tmp_path / "broken", body) if body else "no-such-g++")
    monkeypatch.setattr(build, "_TIMEOUT", 0.5)
    with pytest.raises(ConfigError, match=rf"^backend=compiled: [^\n]*{reason}[^\n]*$"):
        set_backend("compiled")
    assert set_backend("auto") == "torch"
    assert reason in warnings_of(caplog)[0]


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="options of x86-64's compilers")
@pytest.mark.parametrize("real", ["float", "double"])
@pytest.mark.parametrize("vectors", ["-mno-avx", "-mavx -mno-avx512f", "-mavx512f"])
def test_the_kernels_compile_for_vectors_of_any_length(vectors: str, real: str) -> None:
    command = (*build._compiler(), *build.FLAGS, *build._arithmetic(), *vectors.split())
    source = str(build.SOURCES / "kernels.cpp")
    build._run(*command, f"-DREAL={real}", "-fsyntax-only", source)


@needs_compiler
def test_a_library_is_built_once_and_kept(
    quick_compiler: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set_backend("compiled") == "compiled"
    assert quick_compiler() == 1
    kernels = kernels_for(ONES)
    assert kernels.name == "compiled"
    folder = Path(os.environ["ROBUST_DIFFUSION_CACHE"])
    (library,) = folder.glob("*.so")
    assert library.name.startswith("kernels-float-")
    # Another process, as it were; and in a folder that nobody can write to.
    monkeypatch.setattr(compiled, "load_library", cache(build.load_library.__wrapped__))
    monkeypatch.setattr(build, "FileLock", None)
    with without_type_checks():
        compiled.CompiledKernels()
    assert quick_compiler() == 1
    assert [path for path in folder.iterdir() if path.suffix != ".lock"] == [library]


@needs_compiler
@pytest.mark.parametrize("obstacle", ["file", "no locks", "not a library"])
def test_a_cache_that_cannot_be_used_falls_back(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cache"
    if obstacle == "file":  # as root, no folder is ever read-only
        folder.write_text("")
    elif obstacle == "no locks":

        def refuse(path: str) -> None:
            raise NotImplementedError("FileSystem does not appear to support flock")

        monkeypatch.setattr(build, "FileLock", refuse)
    else:
        folder.mkdir()
        (folder / f"kernels-float-{build._identity(build._compiler())}.so").write_text("half of it")
    assert set_backend("auto") == "torch"
    (warning,) = warnings_of(caplog)
    assert str(folder) in warning
    assert "\n" not in warning
    with pytest.raises(ConfigError, match=rf"backend=compiled: {folder}"):
        set_backend("compiled")


@pytest.mark.slow
@needs_compiler
def test_two_processes_at_once_build_it_once(quick_compiler: Callable[[], int]) -> None:
    # The module alone: it needs none of what the package imports.
    code = f"import runpy; runpy.run_path({build.__file__!r})['load_library']('float')"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.communicate(timeout=100)[1] == ""
        assert process.returncode == 0
    assert quick_compiler() == 1


@pytest.mark.parametrize(
    ("interpret", "remedy"),
    [("0", "a CUDA device"), ("1", r"pip install 'robust-diffusion\[triton\]'")],
)
def test_triton_without_a_device_or_a_package_is_refused(
    interpret: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(
        sys.modules, "robust_diffusion.operators.kernels.triton_kernels", raising=False
    )
    monkeypatch.setattr(selection, "_triton", cache(selection._triton.__wrapped__))
    with pytest.raises(ConfigError, match=rf"^backend=triton: [^\n]*{remedy}[^\n]*$"):
        set_backend("triton")
    assert selection._Setting.asked == "auto"


@pytest.mark.usefixtures("without_compiler")
def test_auto_leaves_triton_to_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert set_backend("auto") == current_backend("cuda") == "torch"
