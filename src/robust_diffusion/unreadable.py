"""Data that a sweep could not read: tried once, told once, and a failure of every cell on them."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robust_diffusion.errors import DataError
from robust_diffusion.hashes import canonical_json

NOTE = ".unreadable-"
"""Beginning of the names of the files that say so, in the folder of the sweep."""


class KnownUnreadableError(DataError):
    """Data of which an earlier cell of the sweep has told that they cannot be read."""


@contextmanager
def read_once(sweep: Path | None, data: Mapping[str, Any]) -> Iterator[None]:
    """Let the cells of a sweep read data in a `with` block until one of them has failed to.

    Cells may run side by side, so the folder of the sweep holds what is known.

    Args:
        sweep: The folder; `None` outside a sweep, where nothing is remembered.
        data: The configuration of the data.

    Raises:
        KnownUnreadableError: An earlier cell has told already that they cannot be read.
        DataError: They cannot be read, as this cell is the first to find.
    """
    if sweep is None:
        yield
        return
    name = hashlib.sha256(canonical_json(dict(data), "data").encode()).hexdigest()[:16]
    note = sweep / f"{NOTE}{name}"
    if note.is_file():
        raise KnownUnreadableError(note.read_text(encoding="utf-8"))
    try:
        yield
    except DataError as error:
        try:
            with note.open("x", encoding="utf-8") as file:
                file.write(str(error))
        except FileExistsError:  # a cell beside this one was first
            raise KnownUnreadableError(str(error)) from error
        raise


def read_anew(sweep: Path) -> None:
    """Forget, as a sweep begins, what an earlier one of the same folder could not read."""
    for note in sweep.glob(f"{NOTE}*"):
        note.unlink(missing_ok=True)
