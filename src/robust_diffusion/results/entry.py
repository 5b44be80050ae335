"""Entry of a table: seeds, mean, deviation, marks, and comparison with a reported number."""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from robust_diffusion.evaluation.records import Record
from robust_diffusion.results.cells import CLEAN, Cell, Selection

State = Literal["measured", "failed", "no data", "not run"]
Test = Literal["welch", "one sample"]
MarkKind = Literal["warning", "failed", "no data", "seeds", "code", "settings", "budget"]

ROUNDING = 0.005
"""Half of the last reported digit of an accuracy, in %."""

BAND = 2.0
"""Pooled standard deviations beyond which an entry is outside the tolerance."""


NUMBER = re.compile(r"-?\d+(\.\d+)?")
"""What two warnings of one kind may differ in."""


@dataclass(frozen=True)
class Reported:
    """A number that a publication reports.

    Args:
        mean: In the table's unit; `None` where nothing is reported.
        std: In the same unit; `None` where none is reported.
        budget: Injected nodes, and edges of each, where the publication says so.
    """

    mean: float | None = None
    std: float | None = None
    budget: tuple[int, int] | None = None


@dataclass(frozen=True)
class Mark:
    """Something that a reader of an entry has to know.

    Args:
        kind: `warning` of an attack; seeds that `failed` or had `no data`; fewer `seeds` than
            other entries; results of several versions of the `code`; cells of other `settings`
            left out; a `budget` other than the reported one.
        text: In one line.
    """

    kind: MarkKind
    text: str


@dataclass(frozen=True)
class Run:
    """One seed of an entry.

    Args:
        seed: The seed.
        value: In the table's unit.
        record: The whole record, for whatever else is asked of it.
    """

    seed: int
    value: float
    record: Record


@dataclass(frozen=True)
class Entry:
    """Measured number of an entry beside the reported one.

    Args:
        keys: Axis -> value of its row, its column and all that the table has in common.
        graph: The test graph, clean or an attack's.
        reported: In the same unit.
        state: Whether there is a number, and if not, why.
        runs: Its seeds; none unless measured.
        mean: Over the seeds, in the table's unit.
        std: Sample standard deviation over the seeds; `None` with fewer than two.
        marks: What a reader has to know.
        p: Of the test against the reported number, before correction; see `test`.
        p_holm: Corrected over all entries of the table.
        test: Welch's test, or one sample's where no deviation is reported.
        rank: 1 for the best of its row or column, 2 for the second best; equals share a rank.
        comparable: Whether the reported number is of the same thing; not in a smoke run.
        timed: It is a time on that graph, no accuracy.
        quartiles: Of a time, the first and the third over its repeats, means over the seeds.
    """

    keys: Mapping[str, str]
    graph: str
    reported: Reported
    state: State
    runs: tuple[Run, ...] = ()
    mean: float | None = None
    std: float | None = None
    marks: tuple[Mark, ...] = ()
    p: float | None = None
    p_holm: float | None = None
    test: Test | None = None
    rank: int | None = None
    comparable: bool = True
    timed: bool = False
    quartiles: tuple[float, float] | None = None

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(run.seed for run in self.runs)

    @property
    def difference(self) -> float | None:
        """Measured less reported mean; `None` of times, see `factor`."""
        if self._compared is None or self.timed:
            return None
        return self._compared[0] - self._compared[1]

    @property
    def factor(self) -> float | None:
        """Measured over reported time, of another machine; `None` of accuracies."""
        if self._compared is None or not self.timed:
            return None
        return self._compared[0] / self._compared[1]

    @property
    def _compared(self) -> tuple[float, float] | None:
        if self.mean is None or self.reported.mean is None or not self.comparable:
            return None
        return self.mean, self.reported.mean

    @property
    def deviations(self) -> float | None:
        """The difference in pooled standard deviations, measured and reported.

        `None` with one seed, or where no deviation is reported.
        """
        if self.difference is None or self.std is None or self.reported.std is None:
            return None
        pooled = math.sqrt((self.std**2 + self.reported.std**2) / 2)
        # Reported numbers are rounded, so nothing is known more exactly than that.
        return self.difference / max(pooled, ROUNDING)

    @property
    def outside_tolerance(self) -> bool:
        """Whether it lies further from the reported mean than `BAND` pooled deviations."""
        return self.deviations is not None and abs(self.deviations) > BAND

    @property
    def reason(self) -> str | None:
        """Why there is no number, in one line."""
        if self.state not in ("failed", "no data"):
            return None
        return next(mark.text for mark in self.marks if mark.kind == self.state)


def measure(
    keys: Mapping[str, str],
    graph: str,
    reported: Reported,
    found: Selection,
    *,
    comparable: bool,
    timed: bool = False,
) -> Entry:
    """An entry of accuracies in %, or of times in ms, not yet tested or ranked.

    Args:
        keys: Axis -> value.
        graph: The test graph, clean or an attack's.
        reported: The published number.
        found: Its cells.
        comparable: Whether the reported number is of the same thing.
        timed: It is one of times.
    """
    runs = tuple(
        Run(seed, _value(cell.record, graph, timed=timed), cell.record)
        for seed, cell in found.finished.items()
    )
    values = [run.value for run in runs]
    return Entry(
        keys=keys,
        graph=graph,
        reported=reported,
        state=_state(found),
        runs=runs,
        mean=statistics.fmean(values) if values else None,
        std=statistics.stdev(values) if len(values) > 1 else None,
        marks=tuple(_marks(found, runs, graph, reported.budget if comparable else None)),
        comparable=comparable,
        timed=timed,
        quartiles=_quartiles(runs) if timed and runs else None,
    )


def _value(record: Record, graph: str, *, timed: bool) -> float:
    if timed:
        return 1e3 * record["seconds"]["diffusion"]  # type: ignore[no-any-return]
    return 100 * record["accuracy"][graph]  # type: ignore[no-any-return]


def _quartiles(runs: Sequence[Run]) -> tuple[float, float]:
    first, third = (
        1e3 * statistics.fmean(run.record["timing"][key] for run in runs) for key in ("q1", "q3")
    )
    return first, third


def _state(found: Selection) -> State:
    if found.finished:
        return "measured"
    if not found.failed:
        return "not run"
    return "no data" if all(map(_lacks_data, found.failed.values())) else "failed"


def _lacks_data(cell: Cell) -> bool:
    return cell.record.get("error_kind") == "DataError"


def _marks(
    found: Selection, runs: Sequence[Run], graph: str, budget: tuple[int, int] | None
) -> Iterator[Mark]:
    failures: dict[tuple[MarkKind, str], list[int]] = {}
    for seed, cell in found.failed.items():
        kind: MarkKind = "no data" if _lacks_data(cell) else "failed"
        failures.setdefault((kind, cell.record["error"]), []).append(seed)
    # What failed comes first, since it says more than data that are not there.
    for (kind, error), seeds in sorted(failures.items(), key=lambda item: item[0][0]):
        yield Mark(kind, f"{kind}: {error}" + (f" ({_named(seeds)})" if runs else ""))
    yield from _warnings(runs, graph)
    codes = sorted({str(run.record.get("code")) for run in runs})
    if len(codes) > 1:
        yield Mark("code", f"seeds of {len(codes)} versions of the code: {', '.join(codes)}")
    if found.left_out:
        cells = "cell" if found.left_out == 1 else "cells"
        yield Mark("settings", f"{found.left_out} {cells} of other settings left out")
    if budget is not None and graph != CLEAN:
        for own in sorted({_declared(run.record) for run in runs} - {budget}):
            text = "budget {} x {}, reported {} x {}".format(*own, *budget)
            yield Mark("budget", text)


def _warnings(runs: Sequence[Run], graph: str) -> Iterator[Mark]:
    warned: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        for line in run.record.get("warnings", {}).get(graph, []):
            kind_of_line = warned.setdefault(NUMBER.sub("", line), {})
            kind_of_line.setdefault(line, []).append(run.seed)
    for lines in warned.values():
        (line, seeds), *others = lines.items()
        said = _named(seeds)
        if others:
            said += (
                f"; with other numbers {_named([seed for _, seeds in others for seed in seeds])}"
            )
        yield Mark("warning", f"{graph}: {line} ({said})")


def _declared(record: Record) -> tuple[int, int]:
    declared = record["budget"]["declared"]
    return declared["max_injected_nodes"], declared["max_edges_per_injected_node"]


def _named(seeds: Sequence[int]) -> str:
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))
