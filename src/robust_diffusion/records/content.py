"""The user's own code and files, which a configuration only names and a result depends on."""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from typing import Any

from robust_diffusion.system.hashes import file_hash, source_hash

LIBRARIES = frozenset(
    [
        *("builtins", *sys.stdlib_module_names),
        *("robust_diffusion", "hydra", "lightning_fabric", "numpy", "omegaconf", "pandas"),
        *("pytorch_lightning", "scipy", "torch", "torch_geometric", "torchdiffeq", "torchmetrics"),
    ]
)
"""Packages that a record identifies by their version, or by `code`, and not by their source."""

INSTALLED = frozenset(["site-packages", "dist-packages"])
"""Folders whose packages have nothing to do with each other."""


def by_content(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with file hashes in place of paths, and `user_code` added."""
    return with_content(config, user_files(config), user_code(config))


def with_content(
    config: Mapping[str, Any], files: Mapping[str, Any], code: Mapping[str, str]
) -> dict[str, Any]:
    """Return a configuration with `files` in place of the values at their paths, and `code`."""
    changed: dict[str, Any] = _mapped(config, lambda value, path, _: files.get(path) or value)
    return changed | ({"user_code": dict(code)} if code else {})


def user_files(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return hashes of the files that a configuration names, by the key that names them.

    A value names a file if it has a suffix or a folder and the file exists. A `path` beside a
    `data_dir` is relative to it. A graph's own `data.source.path` may be a folder, too, and have
    any name.
    """
    hashes: dict[str, dict[str, str]] = {}

    def add(value: Any, path: str, siblings: Any) -> Any:
        if found := _content(value, path, siblings):
            hashes[path] = found
        return value

    _mapped(config, add)
    return hashes


def user_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Hashes of the user's modules that a configuration depends on, by their name.

    These are the module of each `_target_` outside the package and its libraries, and what it
    imports, directly or not, from its own top-level package or from the folder that this lies in.
    Imports are read from the source, so that nothing is run; data that the code reads, and imports
    by a computed name, are not seen. A module is hashed once per process, as it is loaded once.
    """
    targets = [of for of in _targets(config) if of.split(".")[0] not in LIBRARIES]
    return dict(sorted(item for target in targets for item in _hashes(target).items()))


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str):
            yield target
            named = node.get("path")
            if target.startswith("hydra.utils.") and isinstance(named, str):
                yield named  # get_class, get_method and get_object fetch what this names
    if isinstance(node, Mapping | list):
        for child in node.values() if isinstance(node, Mapping) else node:
            yield from _targets(child)


@cache
def _hashes(target: str) -> dict[str, str]:
    """Name and hash of every module of the user's that a target needs."""
    root = _root(target.split(".")[0])
    if root is None:
        return {}  # not there, as instantiating it will say
    waiting, found = [target], dict[str, Path]()
    while waiting:
        for name, path in _chain(waiting.pop(), root):
            if name not in found:
                found[name] = path
                waiting += _imports(name, path)
    return {name: source_hash(path) for name, path in found.items()}


def _root(package: str) -> Path | None:
    """The folder or file in which modules belong to a top-level package or module."""
    spec = _spec(package, None)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    own = Path(folders[0]) if folders else Path(spec.origin or "")
    return own if own.parent.name in INSTALLED else own.parent


def _chain(name: str, root: Path) -> Iterator[tuple[str, Path]]:
    """The module of a dotted name and the packages around it, as far as there are files."""
    places: list[str] | None = None
    for module in accumulate(name.split("."), "{}.{}".format):
        spec = _spec(module, places)
        if spec is None:
            return  # the rest names a class or a function
        if spec.origin and spec.has_location and _belongs(file := Path(spec.origin), root):
            yield module, file
        if spec.submodule_search_locations is None:
            return
        places = list(spec.submodule_search_locations)


def _belongs(file: Path, root: Path) -> bool:
    # A virtual environment may lie in the folder of the project.
    return file.is_relative_to(root) and not {*file.relative_to(root).parts} & INSTALLED


def _spec(name: str, places: list[str] | None) -> ModuleSpec | None:
    """The place of a module, found without importing the packages around it."""
    if name.split(".")[0] in LIBRARIES:
        return None
    finders = [find for finder in sys.meta_path if (find := getattr(finder, "find_spec", None))]
    try:
        return next((spec for find in finders if (spec := find(name, places, None))), None)
    except KeyError:  # a folder without __init__.py, whose package Python wants imported first
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [f"{of}/{name.split('.')[-1]}" for of in places or ()]
        return spec


def _imports(module: str, path: Path) -> list[str]:
    """Names that a module imports, each a module or something in one."""
    if path.suffix != ".py":
        return []
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return []  # importing it will say so
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            with suppress(ImportError):  # from beyond the top-level package
                absolute = resolve_name(base, package) if node.level else base
                names += [f"{absolute}.{alias.name}" for alias in node.names]
    return names


def _mapped(
    node: Any, change: Callable[[Any, str, Any], Any], path: str = "", siblings: Any = None
) -> Any:
    """Return a nested configuration with its values changed; `change` gets their paths, too."""
    if isinstance(node, Mapping):
        return {key: _mapped(node[key], change, f"{path}.{key}", node) for key in node}
    if isinstance(node, list):
        return [_mapped(child, change, f"{path}.{i}", node) for i, child in enumerate(node)]
    return change(node, path.removeprefix("."), siblings)


def _content(value: Any, path: str, siblings: Any) -> dict[str, str]:
    """Return the file's hash by its suffix, or those of a folder's files by their names."""
    *parents, key = path.split(".")
    if key.startswith("_") or "trainer" in parents:  # Lightning's paths say where it writes
        return {}
    if parents[-2:] == ["data", "source"] and key == "path" and value is not None:
        file = Path(str(value))  # Hydra reads a folder's name of digits as a number
        if file.is_dir():
            return {f.name: file_hash(f) for f in sorted(file.glob("*")) if f.is_file()}
    elif isinstance(value, str) and (Path(value).suffix or len(Path(value).parts) > 1):
        file = Path(value)
        if key == "path" and isinstance(siblings, Mapping) and siblings.get("data_dir"):
            file = Path(str(siblings["data_dir"]), file)
    else:
        return {}
    return {file.suffix: file_hash(file)} if _is_file(file) else {}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False
