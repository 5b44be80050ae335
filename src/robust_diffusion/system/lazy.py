"""Packages whose names are imported when they are first used (PEP 562)."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def typed_imports(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports under `if TYPE_CHECKING:`.

    They are read from its source, so that type checkers and Python use the same lines.
    """
    loader: Any = sys.modules[package].__loader__
    (block,) = (
        node
        for node in ast.parse(loader.get_source(package)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def lazy_attributes(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` that imports a name of `typed_imports` when it is first used.

    A name must not be that of a submodule, which Python would put in its place.
    """
    homes = typed_imports(package)

    def attribute(name: str) -> Any:
        if name == "__all__":
            return list(homes)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
