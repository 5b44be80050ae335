"""Samples: the values of a group, from records or from the paper's own tables."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Protocol, runtime_checkable

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.claims.contrast import Moments
from robust_diffusion.paper.claims.group import ACCURACY, Group
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.printed import ASSUMED_RUNS, printed_number
from robust_diffusion.results.cells import Cell, RecordSet, select, value_at


@dataclass(frozen=True)
class Sample:
    """What is known of a group.

    Args:
        values: By seed: accuracies in points, of other measures the logarithm.
        moments: Their moments, or printed ones; `None` of fewer than two values.
        count: Number of values.
        models: By seed, which entry of the store was tested, as far as records say so.
    """

    values: Mapping[int, float] = field(default_factory=dict)
    moments: Moments | None = None
    count: int = 0
    models: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[int, float], models: Mapping[int, str] | None = None) -> "Sample":
        """That of some values by seed, and of the models by seed."""
        moments = Moments.of(values.values()) if len(values) > 1 else None
        return cls(values, moments, len(values), models or {})

    @property
    def by_seed(self) -> list[float]:
        """The values, the least seed's first."""
        return [self.values[seed] for seed in sorted(self.values)]

    def spread(self) -> "Sample":
        """Distances from the median, whose mean tells how far the values spread.

        Reference: Brown and Forsythe 1974.
        """
        if not self.values:
            return Sample()
        middle = median(self.values.values())
        distances = {seed: abs(value - middle) for seed, value in self.values.items()}
        return Sample.of(distances, self.models)


@runtime_checkable
class Evidence(Protocol):
    """Gives the sample of every group."""

    def sample(self, group: Group) -> Sample:
        """What is known of a group; an empty sample if nothing is."""


class RecordedEvidence:
    """Samples from records; each seed counts once.

    Args:
        records: Those that count.
    """

    def __init__(self, records: RecordSet) -> None:
        self._records = records
        self._cells: dict[str, list[Cell]] = {}

    def sample(self, group: Group) -> Sample:
        """The finished cells of a group, by seed."""
        name = group.experiment
        if name not in self._cells:
            self._cells[name] = self._records.cells(name)
        found = select(
            self._cells[name], group.line.record, group.graph, timed=group.timed
        ).finished
        values = {seed: _value(cell.record, group) for seed, cell in found.items()}
        models = {
            seed: victim
            for seed, cell in found.items()
            if (victim := cell.record.get("files", {}).get("victim"))
        }
        return Sample.of({s: value for s, value in values.items() if value is not None}, models)


class PrintedEvidence:
    """Samples from the paper's tables: does the paper's own table say what its text says?"""

    def sample(self, group: Group) -> Sample:
        """The printed mean and deviation of a group, as of so many runs."""
        if group.measure != ACCURACY:
            return Sample()
        try:
            printed = printed_number({"table": _label(group.experiment), **group.line.printed})
        except ConfigError:
            return Sample()
        if printed.mean is None or printed.std is None:
            return Sample()
        moments = Moments(printed.mean, printed.std**2, ASSUMED_RUNS)
        return Sample(moments=moments, count=ASSUMED_RUNS)


@cache
def _label(experiment: str) -> str:
    """The table's label in the paper."""
    return load_layout(int(experiment.removeprefix("table-"))).label


def _value(record: Record, group: Group) -> float | None:
    if group.measure == ACCURACY:
        return 100.0 * record["accuracy"][group.graph]  # type: ignore[no-any-return]
    found = value_at(record, group.measure)
    # A factor is a difference of logarithms, so what is not positive has none.
    return math.log(found) if isinstance(found, int | float) and found > 0 else None
