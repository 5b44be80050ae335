"""Samples of groups, from records or from the paper's own tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median

import pandas as pd

from robust_diffusion.cells.timing import MEDIAN_SECONDS
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import WORST
from robust_diffusion.paper.claims.claim import ACCURACY, MLP, WORST_CASE, Group, Terms
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.printed import ASSUMED_RUNS, printed_number
from robust_diffusion.records.records import Record
from robust_diffusion.results.cells import CLEAN, RecordSet, select, value_at
from robust_diffusion.results.entry import Reported
from robust_diffusion.results.frame import frame
from robust_diffusion.results.significance import Estimate
from robust_diffusion.results.worst_case import worst_cases

WORST_CASES = (WORST_CASE, "worst-case-models", "worst-case-graphs")
"""Experiments in which all seeds of all models meet the same attacks, on one split per dataset."""


@dataclass(frozen=True)
class Sample:
    """Values of a group by seed, or what is printed of it; empty if nothing is known."""

    values: Mapping[int, float] = field(default_factory=dict)  # logarithms of times
    printed: Reported | None = None

    @property
    def count(self) -> int:
        """Number of values."""
        return ASSUMED_RUNS if self.printed else len(self.values)

    def spread(self) -> "Sample":
        """Distances from the median, whose mean measures the spread.

        Reference: Brown and Forsythe 1974.
        """
        middle = median(self.values.values()) if self.values else 0.0
        return Sample({seed: abs(value - middle) for seed, value in self.values.items()})


Evidence = Callable[[Group], Sample]
"""Source of samples."""


def recorded_evidence(records: Sequence[Record], *, fidelity: str) -> Evidence:
    """Samples from the finished cells of one variant; each seed counts once.

    An MLP has no variants, so that of `experiment=mlp` counts whatever variant it was run as.
    """
    cells = cache(RecordSet.of(records, fidelity=fidelity).cells)
    of_any = cache(RecordSet.of(records).cells)

    @cache
    def of_worst() -> pd.DataFrame:
        return frame(cell.record for own in WORST_CASES for cell in cells(own) if cell.finished)

    @cache
    def sample(group: Group) -> Sample:
        name, graph, timed = group.experiment, group.graph, group.measure == MEDIAN_SECONDS
        if name == WORST_CASE:
            return _worst_case(of_worst(), group)
        if name == MLP:
            found, graph = of_any(name), CLEAN  # it sees no edge, injected ones included
        else:
            found = cells(name)
        finished = select(found, group.line.record, graph, timed=timed).finished
        values = {seed: _value(cell.record, group, graph) for seed, cell in finished.items()}
        return Sample({seed: value for seed, value in values.items() if value is not None})

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
    return Sample() if found.mean is None or found.std is None else Sample(printed=found)


def _worst_case(results: pd.DataFrame, group: Group) -> Sample:
    """Worst, or clean, accuracy per seed of a model that was itself attacked."""
    wanted = group.line.record.items()

    def fits(record: Record) -> bool:
        return all(value_at(record, path) == value for path, value in wanted)

    models = worst_cases(results[results["record"].map(fits).astype(bool)])
    seen = models[models["seen"]].set_index("draw")
    return Sample(dict(100.0 * seen["worst" if group.graph == WORST else "clean"]))


def _value(record: Record, group: Group, graph: str) -> float | None:
    if group.measure == ACCURACY:
        return 100.0 * record["accuracy"][graph]  # type: ignore[no-any-return]
    found = value_at(record, group.measure)
    # A factor is a difference of logarithms, so only positive values have one.
    return math.log(found) if isinstance(found, int | float) and found > 0 else None


def estimate(terms: Terms, samples: Mapping[Group, Sample], min_seeds: int) -> Estimate | None:
    """The weighted sum of the means of some groups; `None` of fewer seeds than that.

    Values are summed seed by seed, since models of one seed share the split and the attacked
    graph; printed means are of independent runs.
    """
    found = [(weight, samples[group]) for weight, group in terms]
    printed = [
        (w, of.mean or 0.0, of.std or 0.0, ASSUMED_RUNS) for w, s in found if (of := s.printed)
    ]
    if len(printed) == len(found):
        return Estimate.sum(printed)
    shared = sorted(set.intersection(*(set(sample.values) for _, sample in found)))
    if len(shared) < min_seeds:
        return None
    # Rounded, since equal differences of floats are not quite equal.
    values = [(weight, sample.values) for weight, sample in found]  # noqa: PD011 (no frame's)
    return Estimate.of(
        [round(math.fsum(w * of_seed[seed] for w, of_seed in values), 9) for seed in shared]
    )
