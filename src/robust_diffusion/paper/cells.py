"""Which recorded cells an entry of a table is made of."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from robust_diffusion.evaluation.identity import recorded_settings
from robust_diffusion.evaluation.records import Record, is_timing, latest_by_cell
from robust_diffusion.hashes import canonical_json
from robust_diffusion.paper.layout import Line

log = logging.getLogger(__name__)

CLEAN = "clean"
ABSENT = object()
"""What `value_at` gives where there is nothing."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell that belongs to a table.

    Args:
        record: Its latest finished record, or else its latest failure.
        asked: Place of the last line that asked for it; a later one is a larger number.
    """

    record: Record
    asked: int

    @property
    def finished(self) -> bool:
        """It has results."""
        return "error" not in self.record

    def settings(self, graph: str) -> str:
        """As `settings_of` its record."""
        return _settings(self._recorded, graph, timed=is_timing(self.record))

    @cached_property
    def _recorded(self) -> dict[str, Any]:
        return recorded_settings(self.record)


@dataclass(frozen=True)
class Selection:
    """The cells of one entry, all of the same settings, seeds aside.

    Args:
        finished: By seed, the latest.
        failed: By seed, where none finished.
        left_out: Number of cells of other settings.
    """

    finished: Mapping[int, Cell]
    failed: Mapping[int, Cell]
    left_out: int


def cells_of(
    records: Sequence[Record], *, experiment: str, scale: str, fidelity: str
) -> list[Cell]:
    """The cells of an experiment, each once, in the order in which they were last asked for.

    A cell that had finished before, perhaps for another experiment, left only a reference; it
    stands for the finished record.

    Args:
        records: In the order in which they were appended.
        experiment: Such as table-3.
        scale: full or smoke.
        fidelity: paper or released.
    """
    asked = {
        record["cell"]: i
        for i, record in enumerate(records)
        if record.get("experiment") == experiment
        and record.get("scale", "full") == scale
        and "cell" in record
    }
    latest = latest_by_cell(records)
    for cell in asked.keys() - latest.keys():
        log.warning("cell %s: only a reference is there, its record is not; left out", cell)
    found = [Cell(latest[cell], i) for cell, i in asked.items() if cell in latest]
    found = [cell for cell in found if cell.record.get("fidelity") == fidelity]
    return sorted(found, key=lambda cell: cell.asked)


def select(cells: Iterable[Cell], line: Line, graph: str, *, timed: bool = False) -> Selection:
    """The cells of one entry.

    Of cells that differ in more than their seed, a run cut short for a look, say, only those
    count that were asked for last, so that no mean is taken over different things.

    Args:
        cells: Of the table.
        line: What the entry stands for.
        graph: The test graph, clean or an attack's.
        timed: Cells that timed a step on it, not those that tested a model; no cell did both.
    """
    variants: dict[str, list[Cell]] = {}
    for cell in cells:
        if is_timing(cell.record) == timed and _fits(cell, line, graph):
            variants.setdefault(cell.settings(graph), []).append(cell)
    if not variants:
        return Selection({}, {}, 0)
    chosen = max(variants.values(), key=lambda v: (any(c.finished for c in v), v[-1].asked))
    finished = {cell.record["seed"]: cell for cell in chosen if cell.finished}
    failed = {c.record["seed"]: c for c in chosen if not c.finished}
    return Selection(
        finished=dict(sorted(finished.items())),
        failed={seed: failed[seed] for seed in sorted(failed.keys() - finished.keys())},
        left_out=sum(len(v) for v in variants.values()) - len(chosen),
    )


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or `ABSENT`."""
    node: Any = record
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return ABSENT
        node = node[key]
    return node


def _fits(cell: Cell, line: Line, graph: str) -> bool:
    record = cell.record
    if any(value_at(record, path) != value for path, value in line.record.items()):
        return False
    if is_timing(record):
        return graph == CLEAN
    if cell.finished:
        return graph in record["accuracy"]
    return graph == CLEAN or graph in record.get("config", {}).get("attacks", {})


def settings_of(record: Record, graph: str) -> str:
    """What has shaped a result, seed aside; and place of computation, unless that was timed.

    Args:
        record: Of the cell.
        graph: The test graph, clean or an attack's.
    """
    return _settings(recorded_settings(record), graph, timed=is_timing(record))


def _settings(config: Mapping[str, Any], graph: str, *, timed: bool) -> str:
    if timed:
        parts = ["model", "data", "trainer", "timing"]
        return canonical_json({part: config.get(part) for part in parts}, "config")
    parts = ["model", "training", "data"]
    if graph != CLEAN:
        parts += ["threat", "budget"]
    chosen = {part: config.get(part) for part in parts}
    if graph != CLEAN:
        chosen["attack"] = config.get("attacks", {}).get(graph)
    return canonical_json(_without_trainer(chosen), "config")


def _without_trainer(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: _without_trainer(child) for key, child in node.items() if key != "trainer"}
