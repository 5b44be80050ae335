"""Parts of an ensemble of attacks, kept in the store until the whole is there."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact

log = logging.getLogger(__name__)


class KeptParts:
    """Keeps what each part of one attack found, so that a killed run can go on.

    Args:
        store: Where entries are kept.
        key: Of the perturbed graph that all parts together make.

    Attributes:
        seconds: Wall time of the parts that were found in the store, when they ran.
    """

    def __init__(self, store: ArtifactStore, key: Mapping[str, Any]) -> None:
        self.seconds = 0.0
        self._store = store
        self._key = key
        # All entries of one graph are a kind of their own, so that they can be told by their name.
        self._kind = "part-" + store.path("graph", key).stem.removeprefix("graph-")[:16]

    def __call__(self, name: str, compute: Callable[[], Artifact]) -> Artifact:
        """A part of this name, from the store or computed; see `attacks.ensemble.Keep`."""

        def timed() -> Artifact:
            start = time.perf_counter()
            found = compute()
            about = {"seconds": time.perf_counter() - start, "found": found.metadata}
            return Artifact(found.tensors, about)

        kept, reused = self._store.get_or_compute(self._kind, {"part": name, **self._key}, timed)
        if reused:
            log.info("%s: done before, taken from the store", name)
            self.seconds += kept.metadata["seconds"]
        return Artifact(kept.tensors, kept.metadata["found"])

    def discard(self) -> None:
        """Remove all parts: of a wide graph they would fill the disk."""
        self._store.discard(self._kind)
