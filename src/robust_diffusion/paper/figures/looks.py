"""Name, colour and marker of each model and test graph, the same in every figure."""

import csv
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

COLOURS: tuple[str, ...] = ("#cc6677", "#332288", "#b8860b", "#117733", "#4477aa")
COLOURS += ("#882255", "#44aa99", "#999933", "#aa4499")
"""Paul Tol's muted scheme, its pale colours darkened; none is grey as edges are."""

MARKERS = "os^vD<>pXPh*d"


class Look(NamedTuple):
    """Name, marker and colour of a series."""

    label: str
    marker: str
    colour: str

    @property
    def style(self) -> dict[str, Any]:
        """Arguments of Matplotlib for its lines and marks."""
        return {"label": self.label, "marker": self.marker, "color": self.colour}


with Path(__file__).with_name("looks.csv").open(newline="", encoding="utf-8") as _file:
    LOOKS = {row.pop("name"): Look(**row) for row in csv.DictReader(_file)}
"""Models by the option that names them, or their flow, and test graphs by the attack."""

_BY_LABEL = {look.label: look for look in LOOKS.values()}


def look_of(name: str, place: int | None = None) -> Look:
    """Look of a model by its option or its label; one that is not known goes by its own name.

    Its marker and colour follow from the name, or from its `place` among what is drawn beside it.
    """
    if look := LOOKS.get(name, _BY_LABEL.get(name)):
        return look
    number = crc32(name.encode()) if place is None else place
    return Look(name, MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)])
