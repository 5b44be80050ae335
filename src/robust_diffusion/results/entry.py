"""Entries of a table: mean and deviation over seeds, marks, rank, and published numbers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.records.identity import trained_model
from robust_diffusion.records.records import CLEAN, Record
from robust_diffusion.results.captions import NUMBER, named_seeds, spent_ranges
from robust_diffusion.results.evidence import CHANCE, knows_model, poisons
from robust_diffusion.results.runs import Runs, Selection
from robust_diffusion.system.numbers import Estimate, holm, mean_and_std

_State = Literal["measured", "failed", "no data", "not run"]
Test = Literal["welch", "one sample"]
Best = Literal["row", "column", "none"]
MarkKind = Literal["warning", "failed", "no data", "seeds", "code", "settings", "budget"]

ROUNDING = 0.005
"""Half of the last reported digit of an accuracy, in %."""

EPS = 1e-6
"""Tolerance for the rounding of features to 32-bit floats."""

BAND = 2.0
"""Tolerance for the difference from a reported number, in pooled standard deviations."""


@dataclass(frozen=True)
class Reported:
    """Number that a publication reports; missing parts are `None`."""

    mean: float | None = None  # in the table's unit
    std: float | None = None  # in the table's unit
    budget: tuple[int, int] | None = None  # injected nodes, and edges of each


@dataclass(frozen=True)
class Mark:
    """Remark on an entry, in one line.

    The kind is one of: a `warning` of an attack; seeds that `failed` or had `no data`; fewer
    `seeds` than other entries; results of several versions of the `code`; runs of other `settings`
    that were left out; or a `budget` other than the reported one.
    """

    kind: MarkKind
    text: str


@dataclass(frozen=True)
class Run:
    """One seed of an entry: its value in the table's unit, and its whole record."""

    seed: int
    value: float
    record: Record


@dataclass(eq=False)
class Entry:
    """Measured number of an entry next to the reported one, both in the table's unit."""

    keys: Mapping[str, str]  # axis -> value, of its row, its column and the whole table
    graph: str  # test graph: clean, or the name of an attack
    reported: Reported
    state: _State  # `measured`, or the reason why there is no number
    runs: tuple[Run, ...] = ()  # its seeds; empty unless measured
    mean: float | None = None  # over the seeds
    std: float | None = None  # sample standard deviation; `None` with fewer than two seeds
    marks: list[Mark] = field(default_factory=list)
    p: float | None = None  # of the test against the reported number, before correction
    p_holm: float | None = None  # corrected over all entries of the table
    test: Test | None = None  # `one sample` if no deviation is reported
    rank: int | None = None  # 1 for the best of its row or column; ties share a rank
    comparable: bool = True  # whether the reported number is comparable; false in a smoke run
    timed: bool = False  # whether it is a time instead of an accuracy
    quartiles: tuple[float, float] | None = None  # first and third of a time, means over the seeds
    difference: float | None = field(init=False, default=None)  # measured minus reported accuracy
    factor: float | None = field(init=False, default=None)  # measured over reported time
    deviations: float | None = field(init=False, default=None)  # difference in pooled deviations

    def __post_init__(self) -> None:
        """Compare the two numbers if both exist."""
        printed, std = self.reported.mean, self.reported.std
        if not self.comparable or self.mean is None or printed is None:
            return
        if self.timed:
            self.factor = self.mean / (printed or math.nan)
            return
        self.difference = self.mean - printed
        if self.std is not None and std is not None:
            # Reported numbers are rounded, which bounds the precision of the comparison.
            pooled = max(math.sqrt((self.std**2 + std**2) / 2), ROUNDING)
            self.deviations = self.difference / pooled

    @property
    def reason(self) -> str | None:
        """Reason why there is no number, in one line."""
        return next((mark.text for mark in self.marks if mark.kind == self.state), None)


Entries = list[list[Entry]]
"""Rows of entries."""


def entry_of(
    keys: Mapping[str, str],
    graph: str,
    reported: Reported,
    selection: Selection,
    *,
    comparable: bool,
    timed: bool = False,
) -> Entry:
    """Return an entry of accuracies in % or times in ms, not yet tested or ranked; see `Entry`."""
    unit = 1e3 if timed else 100
    runs = tuple(
        Run(seed, unit * (run["seconds"]["diffusion"] if timed else run["accuracy"][graph]), run)
        for seed, run in selection.finished.items()
    )
    mean, std = mean_and_std(run.value for run in runs)
    quartiles = (
        1e3 * mean_and_std(run.record["timing"][key] for run in runs)[0]
        for key in ("q1", "q3")
        if timed and runs
    )
    return Entry(
        keys=keys,
        graph=graph,
        reported=reported,
        state=_state(selection),
        runs=runs,
        mean=mean if runs else None,
        std=std if len(runs) > 1 else None,
        marks=list(_marks(selection, runs, graph, reported.budget if comparable else None)),
        comparable=comparable,
        timed=timed,
        quartiles=tuple(quartiles) or None,  # type: ignore[arg-type]
    )


def _state(selection: Selection) -> _State:
    if selection.finished or not selection.failed:
        return "measured" if selection.finished else "not run"
    return "failed" if "failed" in map(_kind, selection.failed.values()) else "no data"


def _kind(failure: Record) -> MarkKind:
    return "no data" if failure.get("error_kind") == "DataError" else "failed"


def _marks(
    selection: Selection, runs: Sequence[Run], graph: str, budget: tuple[int, int] | None
) -> Iterator[Mark]:
    failures: dict[tuple[MarkKind, str], list[int]] = {}
    for seed, record in selection.failed.items():
        failures.setdefault((_kind(record), record["error"]), []).append(seed)
    # Failures come before missing data, since they are more informative.
    for (kind, error), seeds in sorted(failures.items(), key=lambda item: item[0][0]):
        yield Mark(kind, f"{kind}: {error}" + (f" ({named_seeds(seeds)})" if runs else ""))
    yield from _warnings(runs, graph)
    codes = sorted({str(run.record.get("code")) for run in runs})
    if len(codes) > 1:
        yield Mark("code", f"seeds of {len(codes)} versions of the code: {', '.join(codes)}")
    if selection.left_out:
        runs_word = "run" if selection.left_out == 1 else "runs"
        yield Mark("settings", f"{selection.left_out} {runs_word} of other settings left out")
    if budget is not None and graph != CLEAN:
        limits = (run.record.budget for run in runs)
        pairs = {(of.max_injected_nodes, of.max_edges_per_injected_node) for of in limits if of}
        for declared in sorted(pairs - {budget}):
            yield Mark("budget", "budget {} x {}, reported {} x {}".format(*declared, *budget))


def _warnings(runs: Sequence[Run], graph: str) -> Iterator[Mark]:
    warned: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        for line in run.record.get("warnings", {}).get(graph, []):
            kind_of_line = warned.setdefault(NUMBER.sub("", line), {})
            kind_of_line.setdefault(line, []).append(run.seed)
    for lines in warned.values():
        (line, seeds), *others = lines.items()
        text = named_seeds(seeds)
        if others:
            text += f"; with other numbers {named_seeds([s for _, more in others for s in more])}"
        yield Mark("warning", f"{graph}: {line} ({text}); not a bound")


def mark_fewer_seeds(entries: Sequence[Entry]) -> None:
    """Mark entries with fewer seeds than others have."""
    most = max((len(entry.runs) for entry in entries), default=0)
    for entry in entries:
        if 0 < len(entry.runs) < most:
            entry.marks.append(Mark("seeds", f"{len(entry.runs)} of {most} seeds"))


def compare_entries(entries: Sequence[Entry], *, runs: int) -> None:
    """Test every accuracy against its reported number of `runs` runs, Holm-corrected."""
    for entry in entries:
        mean, std, n = entry.reported.mean, entry.reported.std, len(entry.runs)
        if mean is not None and n > 1:
            measured = Estimate.of([run.value for run in entry.runs])
            entry.p = measured.p(mean)
            if std is not None:
                ours = (1, measured.effect, measured.error * math.sqrt(n), n)
                entry.p = Estimate.sum([ours, (-1, mean, std, runs)]).p()
    tested = [(entry, entry.p) for entry in entries if entry.p is not None]
    for (entry, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
        entry.p_holm, entry.test = p, "one sample" if entry.reported.std is None else "welch"


def rank_entries(rows: Entries, best: Best) -> None:
    """Rank the best and the second best entry of each row or column.

    An entry whose attack was misled is not a bound and gets no rank.
    """
    lines = {"row": rows, "column": zip(*rows, strict=True), "none": []}[best]
    for line in map(list, lines):
        # Entries that are equal after rounding share a rank.
        shown = {
            entry: round(entry.mean, 2)
            for entry in line
            if entry.mean is not None and all(mark.kind != "warning" for mark in entry.marks)
        }
        # With two entries, the second would just be the worst.
        ranks = (1, 2) if len(line) > 2 else (1,)
        by_value = dict(zip(sorted(set(shown.values()), reverse=True), ranks, strict=False))
        for entry, value in shown.items():
            entry.rank = by_value.get(value)


def stronger_attacks(entry: Entry, records: Runs) -> Iterator[Mark]:
    """Yield marks of a white-box entry if another attack does more harm.

    The other attack had the same trained models and budget. There is at most one mark for white-box
    and one for transferred attacks, for the most harmful attack of each.

    Args:
        entry: Measured entry; clean, black-box and timed entries get no marks.
        records: Runs with the other attacks.
    """
    lower: dict[bool, dict[str, dict[int, float]]] = {}
    for run in entry.runs:
        if entry.graph == CLEAN or entry.timed or not knows_model(run.record):
            continue
        for other, attack, reached in _stronger(run, entry.graph, records):
            transferred = not knows_model(other) and attack not in CHANCE
            lowest = lower.setdefault(transferred, {}).setdefault(_attack_name(other, attack), {})
            lowest[run.seed] = min(reached, lowest.get(run.seed, math.inf))
    for transferred, attacks in sorted(lower.items()):
        means = {name: mean_and_std(by_seed.values())[0] for name, by_seed in attacks.items()}
        name = min(means, key=lambda name: (means[name], -len(attacks[name])))
        text = "weaker than transfer: " if transferred else ""
        text += f"{name} reaches {means[name]:.2f} % on the same models"
        seeds = named_seeds(sorted(attacks[name]))
        yield Mark("warning", f"{entry.graph}: {text} ({seeds}); not a bound")


def _stronger(run: Run, graph: str, records: Runs) -> Iterator[tuple[Record, str, float]]:
    """Yield run, name and accuracy in % of each more harmful attack from other runs.

    Attacks of the same run are left out, since the table already shows them.
    """
    allowed, injects = run.record.budget, _injects(run.record, graph)
    for other in records.by_model.get(trained_model(run.record), ()):
        # Poisoning attacks another model: the one that is trained on the attacked graph.
        if other["run"] == run.record["run"] or poisons(other):
            continue
        for attack, accuracy in other["accuracy"].items():
            lower = attack != CLEAN and 100 * accuracy < run.value
            if lower and _is_within(other, attack, allowed, injects=injects):
                yield other, attack, 100 * accuracy


def _attack_name(record: Record, attack: str) -> str:
    threat = record.get("threat")
    if attack in CHANCE or threat == "white_box":
        return f"attack={attack}"
    if threat == "black_box":
        return f"attack={attack} crafted on {' or '.join(map(str, record.get('surrogates') or []))}"
    return f"attack={attack} threat={threat}"


def _is_within(other: Record, attack: str, allowed: Budget | None, *, injects: bool) -> bool:
    """Return whether an attack has the required kind and stayed within a budget.

    Args:
        other: Run of the attack.
        attack: Name of the attack in that run.
        allowed: Declared budget to stay within.
        injects: Whether the attack must be an injection.
    """
    budget, spent = other.budget, other.spent.get(attack, {}).values()
    if budget is None or allowed is None:
        return False
    # An attack that injects no node has no feature range.
    written = [used["feature_range"] for used in spent if used["feature_range"] is not None]
    low, high = allowed.limits
    # Only numbers are limits.
    theirs, ours = (
        {key: x for key, x in limits.items() if isinstance(x, int | float)}
        for limits in (budget.bounds, allowed.bounds)
    )
    return (
        _injects(other, attack) == injects
        and allowed.features in (None, budget.features)
        and all(theirs.get(key, math.inf) <= limit for key, limit in ours.items())
        # Older records only report features out of range as text.
        and all(low - EPS <= least and most <= high + EPS for least, most in written)
        and attack not in other.unbounded
        and "budget_overspent" not in other.get("flags", {}).get(attack, ())
    )


def _injects(record: Record, attack: str) -> bool:
    return "injected_nodes" in spent_ranges([record], [attack])
