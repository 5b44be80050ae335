"""Samples of groups, from records or from the paper's own tables."""

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
    """Values of a group, or their moments alone.

    Args:
        values: By seed: accuracies in points, of other measures the logarithm.
        moments: Their moments, or published ones; `None` for fewer than two values.
        count: Number of values.
        models: By seed, the entry of the store that was tested, where records name it.
    """

    values: Mapping[int, float] = field(default_factory=dict)
    moments: Moments | None = None
    count: int = 0
    models: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[int, float], models: Mapping[int, str] | None = None) -> "Sample":
        """Sample of values by seed, and of the tested models by seed."""
        moments = Moments.of(values.values()) if len(values) > 1 else None
        return cls(values, moments, len(values), models or {})

    def spread(self) -> "Sample":
        """Distances from the median, whose mean measures the spread.

        Reference: Brown and Forsythe 1974.
        """
        if not self.values:
            return Sample()
        middle = median(self.values.values())
        distances = {seed: abs(value - middle) for seed, value in self.values.items()}
        return Sample.of(distances, self.models)


@runtime_checkable
class Evidence(Protocol):
    """Source of samples."""

    def sample(self, group: Group) -> Sample:
        """Sample of a group; empty if nothing is known of it."""


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
        cells, wanted = self._cells[name], group.line.record
        found = select(cells, wanted, group.graph, timed=group.timed).finished
        records = {seed: cell.record for seed, cell in found.items()}
        values = {seed: _value(record, group) for seed, record in records.items()}
        models = {seed: r.get("files", {}).get("victim") for seed, r in records.items()}
        return Sample.of(
            {seed: value for seed, value in values.items() if value is not None},
            {seed: model for seed, model in models.items() if model},
        )


class PublishedEvidence:
    """Samples from the paper's own tables, to test its text against them."""

    def sample(self, group: Group) -> Sample:
        """The published mean and deviation of a group, taken as of five runs."""
        if group.measure != ACCURACY:
            return Sample()
        try:
            found = printed_number({"table": _label(group.experiment), **group.line.printed})
        except ConfigError:
            return Sample()
        if found.mean is None or found.std is None:
            return Sample()
        moments = Moments(found.mean, found.std**2, ASSUMED_RUNS)
        return Sample(moments=moments, count=ASSUMED_RUNS)


@cache
def _label(experiment: str) -> str:
    """The table's label in the paper."""
    return load_layout(int(experiment.removeprefix("table-"))).label


def _value(record: Record, group: Group) -> float | None:
    if group.measure == ACCURACY:
        return 100.0 * record["accuracy"][group.graph]  # type: ignore[no-any-return]
    found = value_at(record, group.measure)
    # A factor is a difference of logarithms, so only positive values have one.
    return math.log(found) if isinstance(found, int | float) and found > 0 else None
