"""Recorded cells: the latest record of each, and those behind an entry of a table."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from robust_diffusion.records.identity import once_per_configuration, recorded_settings
from robust_diffusion.records.records import Record, is_timing, latest_by_cell
from robust_diffusion.system.hashes import canonical_json

log = logging.getLogger(__name__)

CLEAN = "clean"
ModelKey = tuple[str, int, float]
"""Settings, seed and clean accuracy of a trained model."""

ABSENT = object()
"""Result of `value_at` for a path that is not there."""


@dataclass(frozen=True)
class Selection:
    """Records of the cells of one entry, all of the same settings, seeds aside."""

    finished: Mapping[int, Record]  # by seed, the latest
    failed: Mapping[int, Record]  # by seed, where none finished
    left_out: int  # number of cells of other settings


@dataclass(frozen=True)
class RecordSet:
    """Records of one scale, and of one variant where models have several."""

    asked: tuple[tuple[str | None, Record], ...]  # experiment and record of every line, in order
    scale: str = "full"  # or smoke
    fidelity: str | None = None  # the variant; any by default
    others: frozenset[tuple[Any, Any]] = frozenset()  # experiment and variant of what is left out

    @classmethod
    def of(
        cls, records: Sequence[Record], *, scale: str = "full", fidelity: str | None = None
    ) -> "RecordSet":
        """The latest record of each cell, in the order asked; a reference stands for its cell's."""
        latest, asked = latest_by_cell(records), []
        missing, others = set(), set()
        for record in records:
            cell = record.get("cell")
            if cell is None or record.get("scale", "full") != scale:
                continue
            found = latest.get(cell)
            if found is None:
                missing.add(cell)
            elif fidelity in (None, found.get("fidelity")):
                asked.append((record.get("experiment"), found))
            else:
                others.add((record.get("experiment"), found.get("fidelity")))
        for cell in sorted(missing):
            log.warning("cell %s: only a reference is there, its record is not; left out", cell)
        return cls(tuple(asked), scale, fidelity, frozenset(others))

    def cells(self, experiment: str) -> list[Record]:
        """Cells of an experiment, each once, in the order in which they were last asked for.

        A cell's record is its latest finished one, or else its latest failure.
        """
        asked = [record for name, record in self.asked if name == experiment]
        last = {record["cell"]: record for record in reversed(asked)}
        return list(last.values())[::-1]

    @cached_property
    def by_model(self) -> Mapping[ModelKey, list[Record]]:
        """Finished cells of all experiments that tested one trained model, by that model."""
        found: dict[ModelKey, list[Record]] = {}
        for record in {record["cell"]: record for _, record in self.asked}.values():
            if is_tested(record):
                found.setdefault(trained_model(record), []).append(record)
        return found


def is_tested(record: Record) -> bool:
    """True for a finished cell that tested a model; of the others, some timed one."""
    return "error" not in record and not is_timing(record)


def select(
    cells: Iterable[Record], wanted: Mapping[str, Any], graph: str, *, timed: bool = False
) -> Selection:
    """The cells of one entry.

    Of cells that differ in more than their seed, a run cut short for a look, say, only those
    count that were asked for last, so that no mean is taken over different things.

    Args:
        cells: Of the table, as of `RecordSet.cells`.
        wanted: Dotted path in a record -> value that it has in every cell of the entry.
        graph: The test graph, clean or an attack's.
        timed: Cells that timed a step on it, not those that tested a model; no cell did both.
    """
    # By settings, those asked for last behind the others.
    variants: dict[str, list[Record]] = {}
    for record in cells:
        if is_timing(record) == timed and _fits(record, wanted, graph):
            settings = settings_of(record, graph)
            variants[settings] = [*variants.pop(settings, []), record]
    if not variants:
        return Selection({}, {}, 0)
    some_finished = [v for v in variants.values() if any("error" not in r for r in v)]
    chosen = (some_finished or list(variants.values()))[-1]
    finished = {record["seed"]: record for record in chosen if "error" not in record}
    # A cell may have failed for want of a seed that is a number.
    of_a_seed = [record for record in chosen if isinstance(record["seed"], int)]
    failed = {record["seed"]: record for record in of_a_seed if "error" in record}
    return Selection(
        finished=dict(sorted(finished.items())),
        failed={seed: failed[seed] for seed in sorted(failed.keys() - finished.keys())},
        left_out=sum(map(len, variants.values())) - len(chosen),
    )


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or `ABSENT`."""
    node: Any = record
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return ABSENT
        node = node[key]
    return node


def _fits(record: Record, wanted: Mapping[str, Any], graph: str) -> bool:
    if any(value_at(record, path) != value for path, value in wanted.items()):
        return False
    if is_timing(record):
        return graph == CLEAN
    if "error" not in record:
        return graph in record["accuracy"]
    return graph == CLEAN or graph in record.get("config", {}).get("attacks", {})


def trained_model(record: Record) -> ModelKey:
    """Key of the model that a finished cell tested: settings, seed and clean accuracy.

    Other versions of the code may train another model of the same settings; it would hardly have
    the same accuracy.
    """
    return settings_of(record, CLEAN), record["seed"], record["accuracy"][CLEAN]


@once_per_configuration
def settings_of(record: Record, graph: str) -> str:
    """Settings behind a result on a graph, its seed aside; of a time, the machine's, too."""
    config = recorded_settings(record)
    if is_timing(record):
        parts = ["model", "data", "trainer", "timing"]
        return canonical_json({part: config.get(part) for part in parts}, "config")
    chosen = {part: config.get(part) for part in ("model", "training", "data")}
    if graph != CLEAN:
        chosen |= {part: config.get(part) for part in ("threat", "budget")}
        chosen["attack"] = config.get("attacks", {}).get(graph)
    return canonical_json(without_trainer(chosen), "config")


def without_trainer(node: Any) -> Any:
    """A configuration without its trainers."""
    if not isinstance(node, dict):
        return node
    return {key: without_trainer(child) for key, child in node.items() if key != "trainer"}
