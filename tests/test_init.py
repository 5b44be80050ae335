"""The package's own names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robust_diffusion

LIGHT = """
import sys, robust_diffusion
dir(robust_diffusion), robust_diffusion.__version__
heavy = {"torch", "numpy", "pandas", "hydra", "omegaconf", "pytorch_lightning", "torch_geometric"}
print(*sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""


def test_importing_the_package_imports_nothing_heavy() -> None:
    run = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@pytest.mark.parametrize("name", robust_diffusion.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(robust_diffusion, name) is not None
    assert name in dir(robust_diffusion)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'robust_diffusion' has no attribute 'Beltram'"):
        robust_diffusion.Beltram  # type: ignore[attr-defined] # noqa: B018
    assert not hasattr(robust_diffusion, "__path_of_nothing__")


def test_type_checkers_see_the_names_that_are_imported() -> None:
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


def test_the_package_is_typed() -> None:
    assert (Path(robust_diffusion.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("package", ["attacks", "flows", "models"])
def test_all_of_a_kind_can_be_imported_from_the_root(package: str) -> None:
    from importlib import import_module

    module = import_module(f"robust_diffusion.{package}")
    classes = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
    assert classes <= {*robust_diffusion.__all__}
