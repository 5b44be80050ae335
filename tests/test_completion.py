"""Completion in bash, set up by the line of the README."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
PROGRAM = Path(sys.executable).with_name("robust-diffusion")

COMPLETE = """
COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=1
$(complete -p robust-diffusion | sed -E 's/.*-F ([^ ]+).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does on TAB: it calls the function that is registered for the program."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.skipif(not PROGRAM.is_file(), reason="the package is not installed")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [("flow=be", ["flow=beltrami"]), ("scale=", ["scale=full", "scale=smoke"])],
)
def test_the_line_of_the_readme_completes_options(typed: str, completed: list[str]) -> None:
    (line,) = re.findall(r"`(eval .*?)`", README.read_text())
    done = subprocess.run(
        ["bash", "-c", line + COMPLETE, "bash", f"robust-diffusion {typed}"],
        env=os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == completed, done.stderr
