"""A file of tensors: named tensors, metadata, and a checksum of the whole file.

It is one safetensors file whose header holds a key, the metadata and the checksum. Reading it never
runs code from it.
"""

import hashlib
import json
import re
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.system.files import check_readable, write_whole
from robust_diffusion.system.hashes import canonical_json

FORMAT = 1
ENTRY = "robust_diffusion"
_DAMAGED = "{path}: is damaged, or no entry of this version's store"
UNSIGNED = "0" * 64
"""Placeholder for the checksum while the file is hashed."""

# The header is JSON within JSON, and the checksum the last word of the inner one. A user's key or
# metadata cannot match, since the quote after its brace would be escaped.
_CHECKSUM = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"}"')


@dataclass(frozen=True)
class Artifact:
    """Named tensors and metadata about them."""

    tensors: dict[str, Tensor]  # by name; those of the store lie on the CPU and share no memory
    metadata: dict[str, Any] = field(default_factory=dict)  # anything that JSON can hold


def read_artifact(path: str | Path) -> Artifact:
    """Read and verify a file; a `DataError` if it is missing or damaged."""
    try:
        check_readable(Path(path))
        with safe_open(path, "pt"):  # compares the sizes in the header with the file's
            payload = Path(path).read_bytes()
    except SafetensorError as error:
        raise DataError(_DAMAGED.format(path=path)) from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read ({reason}); check the path") from error
    return checked_artifact(payload, path)[0]


def cache_key_of(path: Path) -> dict[str, Any]:
    """Return the key under which a store keeps a safetensors file; empty for any other."""
    with safe_open(path, "pt") as file, suppress(ValueError, KeyError, TypeError):
        return dict(json.loads(file.metadata()[ENTRY])["key"])
    return {}


def write_artifact(path: str | Path, artifact: Artifact) -> Path:
    """Write a file that `read_artifact` reads; a `ConfigError` if it cannot be written."""
    payload = encode(artifact, {"kind": "file", "key": {}})
    return write_whole(Path(path), payload, option="path")


def encode(artifact: Artifact, cache_key: dict[str, Any]) -> bytes:
    """Return the bytes of a file, with their checksum."""
    about = {"format": FORMAT, "sha256": UNSIGNED, **cache_key}
    metadata = json.loads(canonical_json(artifact.metadata, "metadata"))
    header = canonical_json(about | {"metadata": metadata}, "store")
    # Copies, since safetensors refuses tensors that share memory.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in artifact.tensors.items()
    }
    unsigned = save(tensors, {ENTRY: header})
    place = _CHECKSUM.search(unsigned)
    assert place is not None
    start, end = place.span(1)
    digest = hashlib.sha256(unsigned).hexdigest().encode()
    return b"".join([unsigned[:start], digest, memoryview(unsigned)[end:]])


def checked_artifact(payload: bytes, path: str | Path) -> tuple[Artifact, dict[str, Any]]:
    """Return the artifact and its key; a `DataError` if the checksum does not match."""
    (length,) = struct.unpack("<Q", payload[:8].ljust(8, b"\0"))
    place = _CHECKSUM.search(payload, 8, min(8 + length, len(payload)))
    if place is not None:
        start, end = place.span(1)
        digest = hashlib.sha256(payload[:start] + UNSIGNED.encode())
        digest.update(memoryview(payload)[end:])
        if digest.hexdigest().encode() == place[1]:
            with suppress(SafetensorError, ValueError, KeyError):
                return decode(payload)
    raise DataError(_DAMAGED.format(path=path))


def decode(payload: bytes) -> tuple[Artifact, dict[str, Any]]:
    """Return the artifact and the key of a file whose checksum is known to match."""
    (length,) = struct.unpack("<Q", payload[:8])
    about = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"][ENTRY])
    if about["format"] != FORMAT:
        raise ValueError
    return Artifact(load(payload), about["metadata"]), {k: about[k] for k in ("kind", "key")}
