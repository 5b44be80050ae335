"""Identity of a model or an attack that was built in Python and not from a configuration."""

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from types import FunctionType, ModuleType
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn

from robust_diffusion.records.content import LIBRARIES
from robust_diffusion.system.tensor_hashes import tensor_hash

FOREIGN = LIBRARIES - {"robust_diffusion"}
"""Packages of whose objects only plain attributes and arrays are looked at."""

MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
"""Attributes of every `nn.Module`: hooks, and tensors that its `state_dict` has."""

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Hooks that change what a module computes, or its gradient."""

PLAIN = (type(None), bool, int, float, str, torch.dtype)

PROCESS = uuid4().hex
"""Stands in a key for what only this process can tell, which no other may agree on."""


def object_key(value: Any) -> Any:
    """All that an object computes by, as JSON: classes, options, source code; weights apart.

    Parameters and buffers of modules are left out, since a hash of the `state_dict` has them. A
    class stands as a `_target_`, by which `by_content` hashes its module and what that imports, and
    with its own source, since it may lie in a notebook. Another process gives the same key. What
    cannot be told from the object, such as the state of a lock, makes two keys differ, never agree.
    """
    return _described(value, ())


def _described(value: Any, parents: tuple[int, ...]) -> Any:
    if isinstance(value, (*PLAIN, Tensor, bytes, ModuleType)):
        return _leaf(value)
    if id(value) in parents:
        return "a parent"
    inside = (*parents, id(value))
    if isinstance(value, Mapping):
        return {_name(key, inside): _described(item, inside) for key, item in value.items()}
    if isinstance(value, Set):  # whose order is another one in each process
        return sorted((_described(item, inside) for item in value), key=json.dumps)
    if isinstance(value, Sequence):
        return [_described(item, inside) for item in value]
    return _object(value, inside)


def _leaf(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tensor_hash(value)
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, ModuleType):
        return value.__name__
    return value if isinstance(value, int | str | None) else repr(value)


def _object(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, type):
        return _code(value)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        given = [cells, value.__defaults__, value.__kwdefaults__]
        return [_code(value), _described(given, inside)]
    if isinstance(value, partial):
        return _described([value.func, value.args, value.keywords], inside)
    if inspect.isroutine(value) or isinstance(value, np.ufunc):  # of C, or a method
        return [_code(value), _described(getattr(value, "__self__", None), inside)]
    return _code(type(value)) | {
        key: _described(item, inside) for key, item in _attributes(value).items()
    }


def _name(key: Any, parents: tuple[int, ...]) -> str:
    return key if isinstance(key, str) else json.dumps(_described(key, parents))


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes that tell an object from others of its class."""
    if not hasattr(value, "__dict__") or isinstance(value, np.ndarray):
        return {"reduced": _reduced(value)}
    own, parts = dict(value.__dict__), dict[str, Any]()
    hooks: dict[str, Any] = {}
    kept: tuple[type, ...] = (*PLAIN, Tensor, np.ndarray)
    if isinstance(value, nn.Module):
        parts = dict(value.named_children())
        hooks = {key: [*own[key].values()] for key in HOOKS if own.get(key)}
        own = {key: item for key, item in own.items() if key not in MODULE_INTERNALS}
        kept = PLAIN  # not what a layer keeps of its last call
    if type(value).__module__.split(".")[0] in FOREIGN:
        own = {key: item for key, item in own.items() if isinstance(item, kept)}
    return own | parts | hooks


def _reduced(value: Any) -> Any:
    """Parts from which `pickle` would build an object that keeps no attributes in Python."""
    try:
        parts = value.__reduce_ex__(2)
    except Exception:  # of anybody's class
        return f"{PROCESS} {id(value)}"
    return [list(part) if isinstance(part, Iterator) else part for part in parts]


def _code(thing: Any) -> dict[str, Any]:
    """Name and, unless a library's version tells it, source of a class or a function."""
    module = getattr(thing, "__module__", None) or "builtins"
    found = {"_target_": f"{module}.{thing.__qualname__}"}
    if module.split(".")[0] not in LIBRARIES:
        with suppress(OSError, TypeError):  # typed in at a prompt
            found["source"] = inspect.getsource(thing)
    return found
