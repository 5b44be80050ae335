"""Samples of groups, from records or from the paper's own tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.axes import WORST
from robust_diffusion.paper.claims.contrast import Moments
from robust_diffusion.paper.claims.group import ACCURACY, MLP, WORST_CASE, Group
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.printed import ASSUMED_RUNS, printed_number
from robust_diffusion.results.cells import Cell, RecordSet, select, value_at
from robust_diffusion.results.worst_case import SEEN, worst_cases
from robust_diffusion.results.worst_case import Evidence as Kind


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


WORST_CASES = (WORST_CASE, "worst-case-models", "worst-case-graphs")
"""Experiments in which all seeds of all models meet the same attacks, on one split per dataset."""


def recorded_evidence(records: Sequence[Record], *, fidelity: str) -> Evidence:
    """Samples from the finished cells of one variant; each seed counts once.

    An MLP has no variants, so that of `experiment=mlp` counts whatever variant it was run as.
    """
    cells = cache(RecordSet.of(records, fidelity=fidelity).cells)
    of_any = cache(RecordSet.of(records).cells)

    def sample(group: Group) -> Sample:
        if group.experiment == WORST_CASE:
            return _worst_case([cell for name in WORST_CASES for cell in cells(name)], group)
        found = of_any(group.experiment) if group.experiment == MLP else cells(group.experiment)
        finished = select(found, group.line.record, group.graph, timed=group.timed).finished
        own = {seed: cell.record for seed, cell in finished.items()}
        values = {seed: _value(record, group) for seed, record in own.items()}
        models = {seed: r.get("files", {}).get("victim") for seed, r in own.items()}
        return Sample.of(
            {seed: value for seed, value in values.items() if value is not None},
            {seed: model for seed, model in models.items() if model},
        )

    return sample


@cache
def published_evidence(group: Group) -> Sample:
    """The paper's own mean and deviation, taken as of five runs, to test its text against them."""
    if group.measure != ACCURACY or not group.experiment.startswith("table-"):
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


def _worst_case(cells: Sequence[Cell], group: Group) -> Sample:
    """Worst, or clean, accuracy per seed of a model that was itself attacked."""
    wanted = group.line.record.items()
    found = [
        cell.record
        for cell in cells
        if cell.finished and all(value_at(cell.record, path) == value for path, value in wanted)
    ]
    kind: Kind = "worst" if group.graph == WORST else "clean"
    return Sample.of(
        {
            seed: 100.0 * model.lowest[kind]
            for drawn in worst_cases(found).values()
            for (seed, _), model in drawn.items()
            if not model.lowest.keys().isdisjoint(SEEN)
        }
    )


def _value(record: Record, group: Group) -> float | None:
    if group.measure == ACCURACY:
        return 100.0 * record["accuracy"][group.graph]  # type: ignore[no-any-return]
    found = value_at(record, group.measure)
    # A factor is a difference of logarithms, so only positive values have one.
    return math.log(found) if isinstance(found, int | float) and found > 0 else None
