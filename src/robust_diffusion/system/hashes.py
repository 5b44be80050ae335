"""The one JSON text of a configuration, and hashes of tensors, files and source code."""

import ast
import hashlib
import json
import math
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robust_diffusion.errors import ConfigError

C_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)
"""Comments, and in a group the literals of C++ that may look like one."""


def canonical_json(value: Any, where: str) -> str:
    """The one JSON text of a value: keys sorted, no spaces, ASCII, floats by `repr`.

    Raises:
        ConfigError: A value that JSON cannot hold, or not finite, named by its place in `where`.
    """
    return json.dumps(_plain(value, where), sort_keys=True, separators=(",", ":"))


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}={value}: is not finite, so it identifies nothing; use a number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ConfigError(f"{where}: has the key {name!r}; use strings")
        return {name: _plain(item, f"{where}.{name}") for name, item in value.items()}
    raise ConfigError(
        f"{where}: a {type(value).__name__} cannot be kept as JSON; use numbers, strings, lists "
        "and dictionaries"
    )


def tensor_hash(*tensors: Tensor) -> str:
    """A hash of the tensors' types, shapes and values, wherever they lie."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def state_hash(state: Mapping[str, Any]) -> str:
    """A hash of a module's `state_dict()`, in whatever order its entries come.

    What `get_extra_state` returns is pickled, as PyTorch does to save it.
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name]
        is_tensor = isinstance(value, Tensor)
        part = tensor_hash(value) if is_tensor else hashlib.sha256(pickle.dumps(value)).hexdigest()
        digest.update(f"{name} {part}\n".encode())
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_hash(path: Path) -> str:
    """A hash of what Python or C++ does: comments, docstrings and layout do not count.

    Of any other file every byte counts.
    """
    if path.suffix == ".py":
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:
            return file_hash(path)
        return hashlib.sha256(ast.dump(_WithoutStrings().visit(tree)).encode()).hexdigest()
    if path.suffix in (".cpp", ".h"):
        text = C_TOKENS.sub(lambda found: found[1] or " ", path.read_text(encoding="utf-8"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return file_hash(path)


class _WithoutStrings(ast.NodeTransformer):
    """Drops docstrings, those of variables included: strings that are statements."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        value = node.value
        is_string = isinstance(value, ast.Constant) and isinstance(value.value, str)
        return None if is_string else node
