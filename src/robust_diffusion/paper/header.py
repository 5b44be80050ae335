"""What all entries of a table have in common: threat model, budget, seeds, code."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robust_diffusion.evaluation.identity import IGNORED_KEYS, PRESENTATION_KEYS
from robust_diffusion.evaluation.records import Record, is_timing
from robust_diffusion.paper.layout import Layout
from robust_diffusion.paper.printed import ASSUMED_RUNS
from robust_diffusion.results.captions import (
    Range,
    describe_limits,
    describe_spent,
    ranges,
    spent_ranges,
)
from robust_diffusion.results.cells import ABSENT, CLEAN, RecordSet, value_at
from robust_diffusion.results.entry import Entry

SAID_ELSEWHERE = frozenset(
    ["attack", "difficulty", "fidelity", "seed", "surrogate", "surrogates", "threat", "trainer"]
)
"""Options that a header names in words of its own, or that shape no result."""


@dataclass(frozen=True)
class Header:
    """What was run, over all records that a table shows.

    Args:
        difficulty: Test nodes: easy, medium, hard or full.
        threats: Threat models.
        surrogates: Models that black-box attacks ran on.
        fidelity: Which reading of the paper.
        scale: full or smoke.
        seeds: The seeds.
        declared: Per limit of the budget its range over the cells.
        feature_limits: Smallest and largest feature value that an attack was allowed.
        spent: Per attack, what it used: per count its range over the cells.
        unbounded: Per attack, the limits that it does not keep by its definition -> its reading.
        states: How many entries are measured, failed, without data, or not run.
        comparisons: Number of p-values.
        codes: Versions of the code that shapes results.
        revisions: Git commits.
        options: Overrides beyond the table's own and the defaults, with the number of cells that
            had them.
        cells: Number of cells.
    """

    difficulty: tuple[str, ...]
    threats: tuple[str, ...]
    surrogates: tuple[str, ...]
    fidelity: str
    scale: str
    seeds: tuple[int, ...]
    declared: Mapping[str, Range]
    feature_limits: Range | None
    spent: Mapping[str, Mapping[str, Range]]
    unbounded: Mapping[str, Mapping[str, str]]
    states: Mapping[str, int]
    comparisons: int
    codes: tuple[str, ...]
    revisions: tuple[str, ...]
    options: Mapping[str, int]
    cells: int

    @property
    def lines(self) -> list[str]:
        """The header in words, a sentence each."""
        counts = ", ".join(f"{number} {state}" for state, number in self.states.items())
        lines = [f"Entries: {counts}."]
        if self.scale == "smoke":
            lines.insert(
                0,
                "Smoke run: every dataset is one small drawn graph under its own name, training "
                "and attacks are cut short, the grid is thinned; it is not tested against the "
                "paper.",
            )
        if not self.cells:
            return lines
        lines.append(f"{self._setting}.")
        if self.spent:
            lines.append(f"Budget of each attack: {self._limits}. Spent: {self._spending}.")
        lines += [
            f"{attack}: not bounded by {limit} ({reading})."
            for attack, limits in self.unbounded.items()
            for limit, reading in limits.items()
        ]
        if self.comparisons:
            lines.append(
                f"p: Welch's t-test against the printed mean and deviation, {ASSUMED_RUNS} runs "
                'assumed behind them (the paper says "5 to 10"); Student\'s where no deviation is '
                f"printed; Holm-corrected over the table's {self.comparisons} comparisons."
            )
        if self.options:
            said = (f"{o} in {n} of {self.cells} cells" for o, n in self.options.items())
            lines.append(f"Options beyond the table's: {'; '.join(said)}.")
        if len(self.codes) > 1:
            lines.append(f"Cells of {len(self.codes)} versions of the code: {_list(self.codes)}.")
        return lines

    @property
    def _setting(self) -> str:
        attacked = f" on {_list(self.surrogates)}" if self.surrogates else ""
        threats = f"threat model {_list(self.threats)}{attacked}, " if self.spent else ""
        nodes = f"{_list(self.difficulty).capitalize()} test nodes, " if self.difficulty else ""
        return (
            f"{nodes}{threats}fidelity={self.fidelity}, "
            f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''} ({_list(self.seeds)})"
        )

    @property
    def _limits(self) -> str:
        said = describe_limits(self.declared, {key for of in self.spent.values() for key in of})
        if self.feature_limits:
            said += ", features from {:.3g} to {:.3g}".format(*self.feature_limits)
        return said

    @property
    def _spending(self) -> str:
        said = (f"{attack} {describe_spent(spent)}" for attack, spent in self.spent.items())
        return "; ".join(said)


def describe(layout: Layout, entries: Sequence[Entry], counted: RecordSet) -> Header:
    """Sum up what a table shows.

    Args:
        layout: Of the table.
        entries: Of all its grids.
        counted: The records that it was made of.
    """
    shown = [(entry.graph, run.record) for entry in entries for run in entry.runs]
    records = list({id(record): record for _, record in shown}.values())
    attacked = [(graph, record) for graph, record in shown if graph != CLEAN]
    declared = [record["budget"]["declared"] for _, record in attacked]
    limits = [budget["feature_limits"] for budget in declared if budget.get("feature_limits")]
    return Header(
        difficulty=_distinct(r.get("difficulty") for r in records if not is_timing(r)),
        threats=_distinct(record.get("threat") for _, record in attacked),
        surrogates=_distinct(s for _, record in attacked for s in record.get("surrogates", [])),
        fidelity=counted.fidelity or "paper",
        scale=counted.scale,
        seeds=tuple(sorted({record["seed"] for record in records})),
        declared=ranges(declared),
        feature_limits=(min(low for low, _ in limits), max(high for _, high in limits))
        if limits
        else None,
        spent={
            graph: spent_ranges([r for name, r in attacked if name == graph], [graph])
            for graph in _distinct(graph for graph, _ in attacked)
        },
        unbounded={
            graph: dict(limits)
            for graph, record in attacked
            if (limits := record["budget"].get("unbounded", {}).get(graph))
        },
        states=dict(Counter(entry.state for entry in entries)),
        comparisons=sum(entry.p is not None for entry in entries),
        codes=_distinct(record.get("code") for record in records),
        revisions=_distinct(record.get("revision") for record in records),
        options=_options(layout, records),
        cells=len(records),
    )


def _options(layout: Layout, records: Sequence[Record]) -> dict[str, int]:
    lines = [line for part in layout.parts for line in (part.fixed, *part.rows, *part.columns)]
    own = {path for line in lines for path in line.record}
    own = {path.removeprefix("config.").removeprefix("model.") for path in own} | layout.swept
    own |= {f"model.{key}" for key in own}

    def counts(key: str, record: Record) -> bool:
        shapes = key.split(".")[0] not in PRESENTATION_KEYS and not IGNORED_KEYS.fullmatch(key)
        said = key in own | SAID_ELSEWHERE
        return shapes and not said and not _is_default(key, record, records)

    return dict(
        Counter(
            f"{key}={value}"
            for record in records
            for key, value in record.get("overrides", {}).items()
            if counts(key, record)
        )
    )


def _is_default(key: str, record: Record, records: Sequence[Record]) -> bool:
    """Whether a cell that did not ask for the option has the same value there."""
    value = value_at(record, f"config.{key}")
    # Datasets and models have defaults of their own, which those of a reading do not depend on.
    kinds = () if key.startswith("fidelity.") else ("dataset", "model", "flow")
    return value is not ABSENT and any(
        key not in other.get("overrides", {})
        and all(other.get(kind) == record.get(kind) for kind in kinds)
        and value_at(other, f"config.{key}") == value
        for other in records
    )


def _distinct(values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for value in values if value is not None))


def _list(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
