"""Samples of groups, from records or from the paper's own tables."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.claims.contrast import Moments
from robust_diffusion.paper.claims.group import ACCURACY, Group
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.printed import ASSUMED_RUNS, printed_number
from robust_diffusion.results.cells import RecordSet, select, value_at


@dataclass(frozen=True)
class Sample:
    """Values of a group, or their moments alone."""

    values: Mapping[int, float] = field(default_factory=dict)  # by seed; logarithms of times
    moments: Moments | None = None  # `None` for fewer than two values
    count: int = 0
    models: Mapping[int, str] = field(default_factory=dict)  # store entry that was tested, by seed

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


Evidence = Callable[[Group], Sample]
"""Source of samples; that of a group of which nothing is known is empty."""


def recorded_evidence(counted: RecordSet) -> Evidence:
    """Samples from the finished cells of records; each seed counts once."""
    cells = cache(counted.cells)

    def sample(group: Group) -> Sample:
        wanted = cells(group.experiment), group.line.record, group.graph
        found = select(*wanted, timed=group.timed).finished
        records = {seed: cell.record for seed, cell in found.items()}
        values = {seed: _value(record, group) for seed, record in records.items()}
        models = {seed: r.get("files", {}).get("victim") for seed, r in records.items()}
        return Sample.of(
            {seed: value for seed, value in values.items() if value is not None},
            {seed: model for seed, model in models.items() if model},
        )

    return sample


@cache
def published_evidence(group: Group) -> Sample:
    """The paper's own mean and deviation, taken as of five runs, to test its text against them."""
    if group.measure != ACCURACY:
        return Sample()
    try:
        table = load_layout(int(group.experiment.removeprefix("table-"))).label
        found = printed_number({"table": table, **group.line.printed})
    except ConfigError:
        return Sample()
    if found.mean is None or found.std is None:
        return Sample()
    moments = Moments(found.mean, found.std**2, ASSUMED_RUNS)
    return Sample(moments=moments, count=ASSUMED_RUNS)


def _value(record: Record, group: Group) -> float | None:
    if group.measure == ACCURACY:
        return 100.0 * record["accuracy"][group.graph]  # type: ignore[no-any-return]
    found = value_at(record, group.measure)
    # A factor is a difference of logarithms, so only positive values have one.
    return math.log(found) if isinstance(found, int | float) and found > 0 else None
