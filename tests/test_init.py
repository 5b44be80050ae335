"""The package's own names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robust_diffusion
from robust_diffusion import attacks, flows, models

LIGHT = """
import sys, robust_diffusion
dir(robust_diffusion), robust_diffusion.__version__
heavy = {"torch", "numpy", "pandas", "hydra", "omegaconf", "pytorch_lightning", "torch_geometric"}
sys.exit(bool(heavy & {name.split(".")[0] for name in sys.modules}))
"""


EVALUATING = """
import sys
from robust_diffusion import evaluate
sys.exit(bool({"pytorch_lightning", "torchdiffeq", "hydra"} & {*sys.modules}))
"""

LISTING = """
import sys
from robust_diffusion.run import main
main(["data", "list"])
sys.exit(bool({"pytorch_lightning", "torch_geometric"} & {*sys.modules}))
"""


@pytest.mark.parametrize("code", [LIGHT, EVALUATING, LISTING])
def test_what_takes_seconds_is_imported_when_it_is_needed(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_type_checkers_see_the_names_that_are_imported_and_all_of_a_kind_are() -> None:
    tree = ast.parse(Path(robust_diffusion.__file__).read_text())
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("robust_diffusion.")
        for alias in node.names
        if alias.asname == alias.name
    }
    homes = {name: f"robust_diffusion.{home}" for name, home in robust_diffusion._HOMES.items()}
    assert seen == homes
    for package in (attacks, flows, models):
        classes = {name for name in package.__all__ if isinstance(getattr(package, name), type)}
        assert classes <= {*robust_diffusion.__all__}
