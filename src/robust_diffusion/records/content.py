"""Hashes of everything a result depends on beyond its configuration: package, user code, files."""

import ast
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import FunctionType
from typing import Any
from uuid import uuid4

from robust_diffusion.system.hashes import file_hash
from robust_diffusion.system.portable import active_settings

_SOURCE = Path(__file__).parents[1]

HASHED_PATHS = (
    *("attacks", "data", "flows", "integrators", "models", "operators", "system/arithmetic.py"),
    "training",
)
"""Code of the package that a trained model or a perturbed graph depends on."""

_LIBRARIES = frozenset(
    [
        *("builtins", *sys.stdlib_module_names),
        *("robust_diffusion", "hydra", "lightning_fabric", "numpy", "omegaconf", "pandas"),
        *("pytorch_lightning", "scipy", "torch", "torch_geometric", "torchdiffeq", "torchmetrics"),
    ]
)
"""Packages that a record identifies by their version, or by `code`, instead of their source."""

INSTALLED = frozenset(["site-packages", "dist-packages"])
"""Folders of unrelated packages."""

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Hooks that change what a module computes, or its gradient."""


@cache
def code_hash() -> str:
    """Return a short hash of the code behind trained models and perturbed graphs.

    It ignores file paths, but includes settings of arithmetic.
    """
    settings = (f"{key}={value}" for key, value in active_settings().items())
    files = (f for part in HASHED_PATHS for f in (_SOURCE / part, *_SOURCE.glob(f"{part}/**/*")))
    sources = sorted(file_hash(f) for f in files if f.suffix in (".py", ".cpp", ".h"))
    return hashlib.sha256("\0".join([*settings, *sources]).encode()).hexdigest()[:16]


def computed_by() -> dict[str, Any]:
    """Return the part of a cache key that is the same for all entries of one process.

    It includes the backend and the number of threads, whose results differ by rounding, which
    training amplifies.
    """
    import torch  # imported late, since most callers of this module compute nothing

    from robust_diffusion.operators import current_backend

    threads = torch.get_num_threads()
    key = {"code": code_hash(), "backend": current_backend()}
    return key | ({} if threads == 1 else {"threads": threads})


def by_content(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with file hashes in place of paths, and `user_code` added."""
    return with_content(config, user_files(config), user_code(config))


def with_content(
    config: Mapping[str, Any], files: Mapping[str, Any], code: Mapping[str, str]
) -> dict[str, Any]:
    """Return a configuration with `files` in place of the values at their paths, and `code`."""

    def replaced(node: Any, path: str) -> Any:
        if isinstance(node, Mapping):
            return {key: replaced(child, f"{path}.{key}") for key, child in node.items()}
        if isinstance(node, list):
            return [replaced(child, f"{path}.{i}") for i, child in enumerate(node)]
        return files.get(path[1:]) or node

    changed: dict[str, Any] = replaced(config, "") if files else {**config}  # most have none
    return changed | ({"user_code": dict(code)} if code else {})


def leaves_of(node: Any, path: str = "", parent: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, value and parent of every setting."""
    if isinstance(node, Mapping | list):
        for key, child in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from leaves_of(child, f"{path}.{key}", node)
    else:
        yield path[1:], node, parent


def user_files(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return hashes of the files that a configuration names, by the key that names them.

    A value names a file if it has a suffix or a folder and the file exists. A `path` next to a
    `data_dir` is relative to it. The `data.source.path` of a custom graph may have any name and may
    be a folder. Hashes of files in a folder are listed by file name, all others by suffix.
    """
    hashes: dict[str, dict[str, str]] = {}
    for path, value, parent in leaves_of(config):
        *parents, key = path.split(".")
        if key.startswith("_") or "trainer" in parents:  # Lightning's paths are outputs
            continue
        is_source = parents[-2:] == ["data", "source"] and key == "path"
        file = Path(str(value))  # Hydra reads a folder name of digits as a number
        if is_source and file.is_dir():
            digests = {f.name: file_hash(f) for f in sorted(file.glob("*")) if f.is_file()}
        else:
            is_name = isinstance(value, str) and (file.suffix or len(file.parts) > 1)
            if key == "path" and not is_source:
                file = Path(str(parent.get("data_dir") or ""), file)
            is_name = is_name or (is_source and value is not None)
            is_file = is_name and os.path.isfile(file)  # noqa: PTH113 - `Path` raises for long ones
            digests = {file.suffix: file_hash(file)} if is_file else {}
        hashes |= {path: digests} if digests else {}
    return hashes


def user_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Return hashes of user modules that a configuration depends on, by module name.

    These are the module of each `_target_` outside the package and its libraries, and everything it
    imports, directly or not, from its top-level package or the folder of that package. Imports are
    read from the source, without executing it, so imports by a computed name and data that the code
    reads are missed. A module is hashed once per process, since it is loaded once.
    """
    targets = (target for target in targets_of(config) if target.split(".")[0] not in _LIBRARIES)
    return dict(sorted(item for target in targets for item in _module_hashes(target).items()))


def targets_of(config: Mapping[str, Any]) -> list[str]:
    """Return the classes and functions that a configuration names."""
    targets = []
    for path, target, parent in leaves_of(config):
        if path.split(".")[-1] == "_target_" and isinstance(target, str):
            targets.append(target)
            # get_class, get_method and get_object return what their `path` names.
            if target.startswith("hydra.utils.") and isinstance(parent.get("path"), str):
                targets.append(parent["path"])
    return targets


@cache
def _module_hashes(target: str) -> dict[str, str]:
    """Return the hash of every user module that a target needs, by module name."""
    _, spec = next(modules_of(target), ("", None))
    if spec is None:
        return {}  # instantiating the target will raise an error
    package = Path((spec.submodule_search_locations or [spec.origin or ""])[0])
    root = package if package.parent.name in INSTALLED else package.parent
    waiting, hashes = [target], dict[str, str]()
    while waiting:
        for name, module in modules_of(waiting.pop()):
            file = Path(module.origin or "")
            # A virtual environment may be inside the project folder.
            inside = file.is_relative_to(root) and not {*file.relative_to(root).parts} & INSTALLED
            if module.has_location and inside and name not in hashes:
                hashes[name] = file_hash(file)
                waiting += (m for m in _imports(name, file) if m.split(".")[0] not in _LIBRARIES)
    return hashes


def modules_of(name: str) -> Iterator[tuple[str, ModuleSpec]]:
    """Yield the package of a dotted name and the modules inside it, without importing them."""
    module, *rest = name.split(".")
    with suppress(ValueError):  # the name of a script, or not a name
        spec = find_spec(module)
        while spec:
            yield module, spec
            if not rest or spec.submodule_search_locations is None:
                return  # the rest names a class or a function
            # By its last name, since the finder would import the packages of a dotted name.
            spec = PathFinder.find_spec(rest[0], list(spec.submodule_search_locations))
            module = f"{module}.{rest.pop(0)}"


def _imports(module: str, file: Path) -> Iterator[str]:
    """Yield the names that a module imports, each a module or something in one."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # importing it will raise an error, unless it is compiled
        return
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # a relative import beyond the top-level package
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{base}.{alias.name}" for alias in node.names)


def object_key(value: Any, parents: tuple[int, ...] = ()) -> Any:
    """Return everything that determines an object's computation, as JSON, except weights.

    The key has classes, options and source. Parameters and buffers of modules are left out, since a
    hash of the `state_dict` covers them. A class appears as a `_target_`, so that `by_content`
    hashes its module and the imports of that, and with its source, since it may be defined in a
    notebook. An object that holds anything else, such as an array or a lock, has another key in
    each call, so that nothing computed with it is reused.
    """
    import torch

    from robust_diffusion.system.tensor_hashes import tensor_hash

    if isinstance(value, torch.Tensor):
        return tensor_hash(value)
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float | torch.dtype | torch.device):
        return repr(value)
    if id(value) in parents:
        return "a parent"
    key = partial(object_key, parents=(*parents, id(value)))
    if isinstance(value, Mapping):
        return {str(name): key(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [key(item) for item in value]
    if isinstance(value, set | frozenset):  # its order differs between processes
        return sorted(map(key, value), key=str)
    return _described(value, key)


def _described(value: Any, key: Callable[[Any], Any]) -> Any:
    """Describe a class, a function or an object, and its contents by `key`."""
    if isinstance(value, type) or (inspect.isbuiltin(value) and value.__self__ is None):
        return _code(value)
    if isinstance(value, FunctionType):
        if _is_of_library(value) and "<locals>" not in value.__qualname__:
            return _code(value)  # what a decorator adds, such as a type check, is of that version
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_code(value), key([cells, value.__defaults__, value.__kwdefaults__])]
    if isinstance(value, partial):
        return key([value.func, value.args, value.keywords])
    # An object of a class in C has more than its `__dict__`.
    if type(value).__reduce__.__qualname__ != "object.__reduce__" or not hasattr(value, "__dict__"):
        return uuid4().hex
    return _code(type(value)) | {name: key(item) for name, item in _attributes(value).items()}


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes that distinguish an object from others of its class."""
    import torch

    attributes, children = dict(value.__dict__), dict[str, Any]()
    plain: tuple[type, ...] = (type(None), int, float, str, torch.dtype)
    if isinstance(value, torch.nn.Module):
        hooks = {key: [*attributes[key].values()] for key in HOOKS if attributes.get(key)}
        children = dict(value.named_children()) | hooks
        # Attributes of every module: hooks, and tensors that are in its `state_dict`.
        for key in vars(torch.nn.Module()).keys() - {"training"}:
            attributes.pop(key, None)
    else:  # in a layer, these would be cached from its last call
        plain += (torch.Tensor,)
    package = type(value).__module__.split(".")[0]
    if package in _LIBRARIES and package != "robust_diffusion":
        attributes = {key: item for key, item in attributes.items() if isinstance(item, plain)}
    return attributes | children


def _code(thing: Any) -> dict[str, Any]:
    """Return the name of a class or function, and its source unless a library version covers it."""
    described = {"_target_": f"{_module(thing)}.{thing.__qualname__}"}
    if not _is_of_library(thing):
        with suppress(OSError, TypeError):  # defined at an interactive prompt
            described["source"] = inspect.getsource(thing)
    return described


def _is_of_library(thing: Any) -> bool:
    return _module(thing).split(".")[0] in _LIBRARIES


def _module(thing: Any) -> str:
    return getattr(thing, "__module__", None) or "builtins"
