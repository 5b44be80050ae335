"""Parts of an ensemble of attacks, kept in the store until the whole is there."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness.effort import Effort
from robust_diffusion.system.artifact import Artifact

log = logging.getLogger(__name__)


class KeptParts:
    """Keeps what each part of one attack found, so that a killed run can go on.

    Args:
        store: Where entries are kept.
        key: Of the perturbed graph that all parts together make.
        effort: Of all parts, to which that of those found in the store is added.
    """

    def __init__(self, store: ArtifactStore, key: Mapping[str, Any], effort: Effort) -> None:
        self.effort = effort
        self._reused = 0
        self._store = store
        self._key = key
        # All entries of one graph are a kind of their own, so that they can be told by their name.
        self._kind = "part-" + store.path("graph", key).stem.removeprefix("graph-")[:16]

    def __call__(self, name: str, compute: Callable[[], Artifact]) -> Artifact:
        """A part of this name, from the store or computed; see `attacks.ensemble.Keep`."""

        def timed() -> Artifact:
            self._tell()
            self.effort.at(name)
            before = self.effort.forwards, self.effort.seconds, len(self.effort.trace)
            found = compute()
            about = {"effort": self.effort.since(*before), "found": found.metadata}
            return Artifact(found.tensors, about)

        kept, reused = self._store.get_or_compute(self._kind, {"part": name, **self._key}, timed)
        if reused:
            self._reused += 1
            self.effort.add(**kept.metadata["effort"])
        return Artifact(kept.tensors, kept.metadata["found"])

    def _tell(self) -> None:
        if self._reused:
            log.info("%d parts done before, taken from the store", self._reused)
            self._reused = 0

    def discard(self) -> None:
        """Remove all parts: of a wide graph they would fill the disk."""
        self._tell()
        self._store.discard(self._kind)
