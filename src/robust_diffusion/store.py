"""The store: what took long to compute is kept once, under a hash of all that it depends on.

One entry is one safetensors file, `<kind>-<hash>.safetensors`: tensors, and in its header the key,
the metadata and a checksum of the whole file. Nothing in it is ever run.
"""

import errno
import hashlib
import json
import logging
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.files import locked, write_whole, written_whole
from robust_diffusion.hashes import canonical_json

log = logging.getLogger(__name__)

FORMAT = 1
ENTRY = "robust_diffusion"
UNSIGNED = "0" * 64
"""Stands where the checksum goes while the file is hashed."""

# The header is JSON within JSON, and the checksum the last word of the inner one. A key or metadata
# of the user's cannot look like this, since there the quote after the brace would be escaped.
CHECKSUM = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"}"')


@dataclass(frozen=True)
class Artifact:
    """Named tensors and what is to be said of them."""

    tensors: dict[str, Tensor]  # by name; those of the store lie on the CPU and share no memory
    metadata: dict[str, Any] = field(default_factory=dict)  # anything that JSON can hold


class ArtifactStore:
    """Artifacts by all that they depend on; safe among processes that run at the same time.

    Args:
        directory: Where entries are kept; made when the first one is.
        refresh: Compute every entry that is asked for anew, whether it is there or not.
        option: The option that names the folder, for messages.
    """

    def __init__(
        self, directory: str | Path, *, refresh: bool = False, option: str = "paths.store"
    ) -> None:
        self.directory = Path(directory)
        self.refresh = refresh
        self.option = option

    def path(self, kind: str, key: Mapping[str, Any]) -> Path:
        """Path of an entry, kept or to be kept; see `get_or_compute`."""
        if not re.fullmatch(r"[\w-]+", kind, re.ASCII):
            raise ConfigError(f"store.kind={kind}: use letters, digits, - and _")
        digest = hashlib.sha256(_cache_key(kind, key).encode()).hexdigest()
        return self.directory / f"{kind}-{digest}.safetensors"

    def get_or_compute(
        self, kind: str, key: Mapping[str, Any], compute: Callable[[], Artifact]
    ) -> tuple[Artifact, bool]:
        """The artifact of that key: from the store, or computed and kept.

        Of several processes that need one entry at once, one computes it and the others wait; a
        process that dies holds nobody up. A damaged entry is moved aside and computed again.

        The kind begins the file's name; the key may hold all that JSON can. The second value
        returned is true if the artifact was found.

        Raises:
            ConfigError: A key that JSON cannot hold, or a folder that cannot be read or written.
        """
        path = self.path(kind, key)
        cache_key = json.loads(_cache_key(kind, key))
        with suppress(DataError):  # looked at again where nobody else can be mending it
            if (found := self._read(path, cache_key)) is not None and not self.refresh:
                return found, True
        with self._locked(path):
            try:
                if (found := self._read(path, cache_key)) is not None and not self.refresh:
                    return found, True
            except DataError as error:
                with self._writing(path):
                    log.warning("%s; moved to %s and computed anew", error, _set_aside(path).name)
            payload = _encode(compute(), cache_key)
            with self._writing(path), written_whole(path, locked=True) as part:
                part.write_bytes(payload)
            # What is handed out now is what will be read next time, to the bit.
            return _decode(payload)[0], False

    def discard(self, kind: str) -> None:
        """Remove all entries of a kind, damaged ones too; who computes one just now still can."""
        for path in self.directory.glob(f"{kind}-{'?' * 64}.safetensors*"):
            with self._writing(path):
                path.unlink(missing_ok=True)

    def _read(self, path: Path, cache_key: dict[str, Any]) -> Artifact | None:
        try:
            payload = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(path, "read", error) from error
        artifact, stored = _checked(payload, path)
        if stored != cache_key:
            raise DataError(f"{path}: holds the entry of another key")
        return artifact

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        with ExitStack() as held:
            with self._writing(path):
                self.directory.mkdir(parents=True, exist_ok=True)
                lock = path.with_name(f".{path.name}.lock")
                held.enter_context(locked(lock, waits_for=str(path)))
            yield

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, NotImplementedError) as error:
            raise self._unusable(path, "written", error) from error

    def _unusable(self, path: Path, verb: str, error: Exception) -> ConfigError:
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number else str(error)
        full = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free space" if full else "make the folder accessible"
        return ConfigError(
            f"{self.option}={self.directory}: {path.name} cannot be {verb} ({reason}); {remedy}, "
            f"or point {self.option} elsewhere"
        )


def read_artifact(path: str | Path) -> Artifact:
    """One entry by its file's path, verified; a `DataError` if it is missing or damaged."""
    try:
        payload = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read ({reason}); check the path") from error
    return _checked(payload, path)[0]


def write_artifact(path: str | Path, artifact: Artifact) -> Path:
    """Write a file that `read_artifact` reads; a `ConfigError` if it cannot be written."""
    payload = _encode(artifact, {"kind": "file", "key": {}})
    return write_whole(Path(path), payload, option="path")


def _cache_key(kind: str, key: Mapping[str, Any]) -> str:
    return canonical_json({"kind": kind, "key": key}, "store")


def _encode(artifact: Artifact, cache_key: dict[str, Any]) -> bytes:
    """The file's bytes, signed."""
    about = {"format": FORMAT, "sha256": UNSIGNED, **cache_key}
    metadata = json.loads(canonical_json(artifact.metadata, "metadata"))
    header = canonical_json(about | {"metadata": metadata}, "store")
    # Copies, since tensors that share memory would be refused.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in artifact.tensors.items()
    }
    unsigned = save(tensors, {ENTRY: header})
    place = CHECKSUM.search(unsigned)
    assert place is not None
    start, end = place.span(1)
    digest = hashlib.sha256(unsigned).hexdigest().encode()
    return b"".join([unsigned[:start], digest, memoryview(unsigned)[end:]])


def _checked(payload: bytes, path: str | Path) -> tuple[Artifact, dict[str, Any]]:
    """The artifact and its key, if every byte is as it was written."""
    (length,) = struct.unpack("<Q", payload[:8].ljust(8, b"\0"))
    place = CHECKSUM.search(payload, 8, min(8 + length, len(payload)))
    if place is not None:
        start, end = place.span(1)
        digest = hashlib.sha256(payload[:start] + UNSIGNED.encode())
        digest.update(memoryview(payload)[end:])
        if digest.hexdigest().encode() == place[1]:
            with suppress(SafetensorError, ValueError, KeyError):
                return _decode(payload)
    raise DataError(f"{path}: is damaged, or no entry of this version's store")


def _decode(payload: bytes) -> tuple[Artifact, dict[str, Any]]:
    (length,) = struct.unpack("<Q", payload[:8])
    about = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"][ENTRY])
    if about["format"] != FORMAT:
        raise ValueError
    return Artifact(load(payload), about["metadata"]), {k: about[k] for k in ("kind", "key")}


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.replace(aside)
