"""Settings that all entries of a table share: threat model, budget, seeds, code."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from robust_diffusion.paper.layout import Layout
from robust_diffusion.paper.printed import ASSUMED_RUNS
from robust_diffusion.records.identity import IGNORED_KEYS, PRESENTATION_KEYS
from robust_diffusion.records.records import Record, is_timing
from robust_diffusion.results.captions import describe_limits, describe_spent, ranges, spent_ranges
from robust_diffusion.results.cells import ABSENT, CLEAN, RecordSet, value_at
from robust_diffusion.results.entry import Entry

SAID_ELSEWHERE = frozenset(
    ["attack", "difficulty", "fidelity", "seed", "surrogate", "surrogates", "threat", "trainer"]
)
"""Options that a header names in words of its own, or that shape no result."""

SMOKE = (
    "Smoke run: every dataset is one small drawn graph under its own name, training and attacks "
    "are cut short, the grid is thinned; it is not tested against the paper."
)

Attacked = Sequence[tuple[str, Record]]
"""Attacks, and a record of each."""


def describe(layout: Layout, entries: Sequence[Entry], counted: RecordSet) -> list[str]:
    """Settings of all records that the grids of a table show, a sentence each."""
    shown = [(entry.graph, run.record) for entry in entries for run in entry.runs]
    records = list({id(record): record for _, record in shown}.values())
    states = Counter(entry.state for entry in entries)
    lines = [SMOKE] if counted.scale == "smoke" else []
    lines.append(f"Entries: {', '.join(f'{n} {state}' for state, n in states.items())}.")
    if records:
        attacked = [(graph, record) for graph, record in shown if graph != CLEAN]
        lines.append(_setting(records, attacked, counted.fidelity or "paper"))
        lines += _budget(attacked) if attacked else []
    if comparisons := sum(entry.p is not None for entry in entries):
        lines.append(
            f"p: Welch's t-test against the printed mean and deviation, {ASSUMED_RUNS} runs "
            'assumed behind them (the paper says "5 to 10"); Student\'s where no deviation is '
            f"printed; Holm-corrected over the table's {comparisons} comparisons."
        )
    if options := _options(layout, records):
        said = (f"{option} in {n} of {len(records)} cells" for option, n in options.items())
        lines.append(f"Options beyond the table's: {'; '.join(said)}.")
    codes = {record.get("code") for record in records} - {None}
    if len(codes) > 1:
        named = _list(record.get("code") for record in records)
        lines.append(f"Cells of {len(codes)} versions of the code: {named}.")
    return lines


def _setting(records: Sequence[Record], attacked: Attacked, fidelity: str) -> str:
    """Test nodes, threat model, variant and seeds."""
    difficulty = _list(record.get("difficulty") for record in records if not is_timing(record))
    nodes = f"{difficulty.capitalize()} test nodes, " if difficulty else ""
    threat = ""
    if attacked:
        surrogates = _list(name for _, record in attacked for name in record.get("surrogates", []))
        on = f" on {surrogates}" if surrogates else ""
        threat = f"threat model {_list(record.get('threat') for _, record in attacked)}{on}, "
    seeds = sorted({record["seed"] for record in records})
    plural = "s" if len(seeds) > 1 else ""
    return f"{nodes}{threat}fidelity={fidelity}, {len(seeds)} seed{plural} ({_list(seeds)})."


def _budget(attacked: Attacked) -> list[str]:
    """Limits of the attacks, what they spent, and the limits that they do not keep."""
    declared = [record["budget"]["declared"] for _, record in attacked]
    spent = {
        attack: spent_ranges([record for name, record in attacked if name == attack], [attack])
        for attack in dict.fromkeys(attack for attack, _ in attacked)
    }
    limits = describe_limits(ranges(declared), {key for of in spent.values() for key in of})
    if features := [found for budget in declared if (found := budget.get("feature_limits"))]:
        low, high = min(low for low, _ in features), max(high for _, high in features)
        limits += f", features from {low:.3g} to {high:.3g}"
    spending = "; ".join(f"{attack} {describe_spent(counts)}" for attack, counts in spent.items())
    unbounded = {
        attack: found
        for attack, record in attacked
        if (found := record["budget"].get("unbounded", {}).get(attack))
    }
    return [
        f"Budget of each attack: {limits}. Spent: {spending}.",
        *(
            f"{attack}: not bounded by {limit} ({why})."
            for attack, found in unbounded.items()
            for limit, why in found.items()
        ),
    ]


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
    """True if a cell that did not ask for the option has the same value there."""
    value = value_at(record, f"config.{key}")
    # Datasets and models have defaults of their own, which those of a variant do not depend on.
    kinds = () if key.startswith("fidelity.") else ("dataset", "model", "flow")
    return value is not ABSENT and any(
        key not in other.get("overrides", {})
        and all(other.get(kind) == record.get(kind) for kind in kinds)
        and value_at(other, f"config.{key}") == value
        for other in records
    )


def _list(values: Iterable[Any]) -> str:
    """The distinct values that are known, in one text."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
