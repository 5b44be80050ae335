"""Cache of expensive results on disk, under a hash of everything they depend on.

Each entry is a safetensors file, `<kind>-<hash>.safetensors`. It contains tensors, and in its
header the key, the metadata and a checksum of the whole file, but no executable code.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from robust_diffusion.checks import named_path
from robust_diffusion.errors import FULL, ConfigError, DataError
from robust_diffusion.system.artifact import Artifact, checked_artifact, decode, encode
from robust_diffusion.system.files import check_readable, locked, written_whole
from robust_diffusion.system.hashes import canonical_json

log = logging.getLogger(__name__)


class ArtifactStore:
    """Cache of artifacts on disk, safe for processes that run in parallel.

    Args:
        directory: Folder of the entries, created with the first one.
        refresh: Recompute every requested entry, even if it is cached.
        option: Name of the option that sets the folder, for messages.
    """

    def __init__(
        self, directory: str | Path, *, refresh: bool = False, option: str = "paths.store"
    ) -> None:
        self.directory = named_path(option, directory)
        self.refresh = refresh
        self.option = option

    def path(self, kind: str, key: Mapping[str, Any]) -> Path:
        """Return the path of an entry, whether it exists or not; see `get_or_compute`."""
        if not re.fullmatch(r"[\w-]+", kind, re.ASCII):
            raise ConfigError(f"store.kind={kind}: use letters, digits, - and _")
        digest = hashlib.sha256(_cache_key(kind, key).encode()).hexdigest()
        return self.directory / f"{kind}-{digest}.safetensors"

    def get_or_compute(
        self, kind: str, key: Mapping[str, Any], compute: Callable[[], Artifact]
    ) -> tuple[Artifact, bool]:
        """Return the cached artifact of a key, computing it on a miss.

        If several processes need the same entry, one computes it and the others wait; a process
        that dies releases its lock. A damaged entry is moved aside and recomputed.

        The file name starts with `kind`; the key may contain anything that JSON can represent. The
        second return value is true if the artifact was cached.

        Raises:
            ConfigError: JSON cannot represent the key, or the folder cannot be read or written.
        """
        path = self.path(kind, key)
        cache_key = json.loads(_cache_key(kind, key))
        with suppress(DataError):  # a damaged entry is checked again below, under the lock
            if (stored := self._read(path, cache_key)) is not None and not self.refresh:
                return stored, True
        with ExitStack() as stack:
            with self._errors(path):
                self.directory.mkdir(parents=True, exist_ok=True)
                lock = path.with_name(f".{path.name}.lock")
                stack.enter_context(locked(lock, waits_for=str(path)))
            try:
                if (stored := self._read(path, cache_key)) is not None and not self.refresh:
                    return stored, True
            except DataError as error:
                with self._errors(path):
                    log.warning("%s; moved to %s and recomputed", error, _set_aside(path).name)
            payload = encode(compute(), cache_key)
            with self._errors(path), written_whole(path, locked=True) as part:
                part.write_bytes(payload)
            # Decoded again, so that the result is bit for bit what later calls will read.
            return decode(payload)[0], False

    def discard(self, kind: str) -> None:
        """Remove all entries of a kind, including damaged ones; running computations continue."""
        for path in self.directory.glob(f"{kind}-{'?' * 64}.safetensors*"):
            with self._errors(path):
                path.unlink(missing_ok=True)

    def _read(self, path: Path, cache_key: dict[str, Any]) -> Artifact | None:
        with self._errors(path, "read"):
            try:
                check_readable(path)
                payload = path.read_bytes()
            except FileNotFoundError:
                return None
        artifact, stored = checked_artifact(payload, path)
        if stored != cache_key:
            raise DataError(f"{path}: holds the entry of another key")
        return artifact

    @contextmanager
    def _errors(self, path: Path, verb: str = "written") -> Iterator[None]:
        """Convert system errors to a `ConfigError` that names the option and a remedy."""
        try:
            yield
        except (OSError, NotImplementedError) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number else str(error)
            remedy = "free space" if number in FULL else "make the folder accessible"
            raise ConfigError(
                f"{self.option}={self.directory}: {path.name} cannot be {verb} ({reason}); "
                f"{remedy}, or point {self.option} elsewhere"
            ) from error


def _cache_key(kind: str, key: Mapping[str, Any]) -> str:
    return canonical_json({"kind": kind, "key": key}, "store")


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.replace(aside)
