"""The Makefile finds a Python that the package supports, or says how to name one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"
AS_VERSION = "import sys; sys.version_info = (3, {}); exec(sys.argv[2])"
VERSION = f"exec {sys.executable} -c '{AS_VERSION}' \"$@\""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("pythons", "found"),
    [
        ({"python3.11": 11, "python3": 12}, "python3.11"),
        ({"python3.13": 13}, "python3.13"),
        ({"python3.11": None, "python3.12": 12}, "python3.12"),  # as a shim of pyenv
        ({"python3": 12}, "python3"),
        ({"python3": 10, "python": 13}, "python"),
        ({"python3": 14}, ""),
        ({}, ""),
    ],
)
def test_demo_finds_a_python_or_names_the_remedy(
    tmp_path: Path, pythons: dict[str, int | None], found: str
) -> None:
    (bin_ := tmp_path / "bin").mkdir()
    for name in ("sh", "make"):
        (bin_ / name).symlink_to(str(shutil.which(name)))
    for name, version in pythons.items():
        body = "exit 127" if version is None else VERSION.format(version)
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    shutil.copy(MAKEFILE, tmp_path)

    def demo(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(bin_ / "make"), "-n", "demo", *words]
        environment = {"PATH": str(bin_)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    outcome = demo()
    if found:
        assert f" {found} -m venv" in outcome.stdout, outcome.stderr
    else:
        (line,) = outcome.stderr.splitlines()
        assert line.endswith(
            "expected a Python of version 3.11 to 3.13, got none; "
            "install one, or name it: make demo PYTHON=/path/to/python3.  Stop."
        )
        assert " mine -m venv" in demo("PYTHON=mine").stdout
