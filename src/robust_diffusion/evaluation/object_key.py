"""Identity of a model or an attack that was built in Python and not from a configuration."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from robust_diffusion.evaluation.content import LIBRARIES
from robust_diffusion.hashes import tensor_hash

FOREIGN = LIBRARIES - {"robust_diffusion"}
"""Packages of whose objects only plain attributes are looked at."""

MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
"""Attributes of every `nn.Module`: hooks, and tensors that its `state_dict` has."""

PLAIN = (type(None), bool, int, float, str, torch.dtype)


def object_key(value: Any) -> Any:
    """All that an object computes by, as JSON: classes, options, source code; weights apart.

    Parameters and buffers of modules are left out, since a hash of the `state_dict` has them. A
    class stands as a `_target_`, by which `by_content` hashes its module and what that imports, and
    with its own source, since it may lie in a notebook. What cannot be told from the object, such
    as an address in a `repr`, makes two keys differ, never agree.

    Args:
        value: A module, an attack, or a part of one.
    """
    return _described(value, ())


def _described(value: Any, parents: tuple[int, ...]) -> Any:
    if isinstance(value, PLAIN):
        return value if isinstance(value, int | str | None) else repr(value)
    if isinstance(value, Tensor):
        return tensor_hash(value)
    if id(value) in parents:
        return "a parent"
    inside = (*parents, id(value))
    if isinstance(value, Mapping):
        return {str(key): _described(item, inside) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_described(item, inside) for item in value]
    if isinstance(value, type):
        return _code(value)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_code(value), _described([cells, value.__defaults__], inside)]
    if isinstance(value, partial):
        return _described([value.func, value.args, value.keywords], inside)
    return _code(type(value)) | {
        key: _described(item, inside) for key, item in _attributes(value).items()
    }


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes that tell an object from others of its class."""
    own = dict(getattr(value, "__dict__", {"repr": repr(value)}))
    parts: dict[str, Any] = {}
    if isinstance(value, nn.Module):
        parts = dict(value.named_children())
        own = {key: item for key, item in own.items() if key not in MODULE_INTERNALS}
    if _is_of(value, FOREIGN):
        own = {key: item for key, item in own.items() if isinstance(item, PLAIN)}
    return own | parts


def _code(thing: Any) -> dict[str, Any]:
    """Name and, unless a library's version tells it, source of a class or a function."""
    found = {"_target_": f"{thing.__module__}.{thing.__qualname__}"}
    if thing.__module__.split(".")[0] not in LIBRARIES:
        with suppress(OSError, TypeError):  # typed in at a prompt
            found["source"] = inspect.getsource(thing)
    return found


def _is_of(value: Any, packages: frozenset[str]) -> bool:
    return type(value).__module__.split(".")[0] in packages
