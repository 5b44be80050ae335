"""Canonical JSON of a configuration, and hashes of files and source code.

It needs only the standard library, and gives the same hashes under every Python version.
"""

import hashlib
import json
import math
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robust_diffusion.errors import ConfigError

C_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)
"""Comments of C++, and in a group its literals, which may look like one."""

MARKS = frozenset(["NEWLINE", "INDENT", "DEDENT", "ENDMARKER"])
"""Tokens that end a logical line or change its indentation; their text does not count."""

F_STRING = re.compile(r"[a-zA-Z]*[fFtT]")
"""Prefix of an f-string or t-string, which is never a docstring."""


def canonical_json(value: Any, where: str) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, ASCII, floats by `repr`.

    Raises:
        ConfigError: A value that JSON cannot hold, or that is not finite, named by its place in
            `where`.
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


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_hash(path: Path) -> str:
    """Return a hash of a source file that ignores comments, docstrings and blank lines.

    Python is hashed by its tokens, C++ by its lines. Files of any other kind, and Python that does
    not parse, are hashed byte by byte.
    """
    try:
        if path.suffix == ".py":
            text = "\0".join(_python_tokens(path))
        elif path.suffix in (".cpp", ".h"):
            source = C_TOKENS.sub(lambda match: match[1] or " ", path.read_text(encoding="utf-8"))
            text = "\n".join(line.strip() for line in source.splitlines() if line.strip())
        else:
            return file_hash(path)
    except (SyntaxError, tokenize.TokenError, UnicodeDecodeError):
        return file_hash(path)
    return hashlib.sha256(text.encode()).hexdigest()


def _python_tokens(path: Path) -> Iterator[str]:
    """Yield the tokens of a Python file, without comments, docstrings and blank lines.

    Python 3.12 splits an f-string into several tokens that earlier versions do not have; its text
    in the file is the same token under all of them.
    """
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    with tokenize.open(path) as source:
        lines = source.read().splitlines(keepends=True)
    logical_line: list[str] = []
    is_docstring, depth, start = True, 0, (0, 0)
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):  # of an f-string, which may hold others
            start = start if depth else token.start
            depth += 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if depth == 0:
                is_docstring = False
                logical_line.append(_text_between(lines, start, token.end))
        elif depth == 0 and name in MARKS:
            if not is_docstring:
                yield from logical_line
                yield name
            elif name != "NEWLINE":
                yield name
            logical_line, is_docstring = [], True
        elif depth == 0 and name not in ("COMMENT", "NL", "ENCODING"):
            is_docstring &= name == "STRING" and not F_STRING.match(token.string)
            logical_line.append(token.string)


def _text_between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (first, left), (last, right) = start, end
    if first == last:
        return lines[first - 1][left:right]
    return "".join([lines[first - 1][left:], *lines[first : last - 1], lines[last - 1][:right]])
