"""One of the paper's tables: measured and published numbers, and remarks."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robust_diffusion.config import CONFIG_DIR, PUBLISHED, read_yaml
from robust_diffusion.paper.axes import DATASETS, STAND_INS, label_of
from robust_diffusion.paper.layout import (
    ASSUMED_RUNS,
    Grid,
    Layout,
    Line,
    fit_layout,
    load_layout,
    table_numbers,
)
from robust_diffusion.records.identity import IGNORED_KEYS, PRESENTATION_KEYS
from robust_diffusion.records.records import ABSENT, CLEAN, Record, is_timing, value_at
from robust_diffusion.results.captions import (
    describe_limits,
    describe_spent,
    listed,
    ranges,
    spent_ranges,
)
from robust_diffusion.results.entry import (
    Entries,
    Entry,
    compare_entries,
    entry_of,
    mark_fewer_seeds,
    rank_entries,
    stronger_attacks,
)
from robust_diffusion.results.runs import Runs, select
from robust_diffusion.system.numbers import mean_and_std, spread

SAID_ELSEWHERE = frozenset(
    ["attack", "difficulty", "fidelity", "seed", "surrogate", "surrogates", "threat", "trainer"]
)
"""Options that the remarks describe separately, or that change no result."""

SMOKE = (
    "Smoke run: every dataset is one small drawn graph under its own name, training and attacks "
    "are cut short, the grid is thinned; it is not tested against the paper."
)

TIMED = ("citeseer_words", "cora")
"""Datasets to time if the table's own is missing, the most similar first."""

_Attacked = Sequence[tuple[str, Record]]
"""Attacks, and a record of each."""


def title_of(layout: Layout, records: Runs) -> str:
    """Return the title of a fitted layout: number, words, label, and a warning for smoke runs."""
    title = f"{layout.name} ({layout.label}), arXiv:2209.07754"
    if other := _stand_in(layout):
        title += f"; dataset={other} as a stand-in"
    if layout.fixed.added:
        title += f"; of {', '.join(f'{axis}={value}' for axis, value in layout.fixed.keys.items())}"
    smoke = records.scale == "smoke"
    return f"{title}; SMOKE RUN, not comparable with the paper" if smoke else title


def remarks(layout: Layout, entries: Sequence[Entry], records: Runs) -> list[str]:
    """Return the remarks on a table, one sentence each, from its fitted layout and all entries."""
    if layout.kind == "budgets":
        return ["Edges are counted per injected node, as GRB's attacks do."]
    shown = [(entry.graph, run.record) for entry in entries for run in entry.runs]
    runs = list({id(record): record for _, record in shown}.values())
    states = Counter(entry.state for entry in entries)
    lines = [SMOKE] if records.scale == "smoke" else []
    if layout.kind == "time":
        lines += _times(layout, runs, states)
    lines.append(f"Entries: {', '.join(f'{n} {state}' for state, n in states.items())}.")
    if runs:
        attacked = [(graph, record) for graph, record in shown if graph != CLEAN]
        lines.append(_setting(runs, attacked, records.fidelity or "paper"))
        lines += _budget(attacked) if attacked else []
    tested = [sum(entry.p is not None for entry in part) for part in by_features(entries)]
    if any(tested):
        over = f"the table's {tested[0]} comparisons" if tested[0] else ""
        of_others = f"the {tested[1]} of the stand-in" if tested[1] else ""
        lines.append(
            f"p: Welch's t-test against the printed mean and deviation, {ASSUMED_RUNS} runs "
            'assumed behind them (the paper says "5 to 10"); Student\'s where no deviation is '
            f"printed; Holm-corrected over {' and '.join(filter(None, [over, of_others]))}."
        )
    if options := _options(layout, runs):
        counts = (f"{option} in {n} of {len(runs)} runs" for option, n in options.items())
        lines.append(f"Options beyond the table's: {'; '.join(counts)}.")
    if len(codes := {record.get("code") for record in runs} - {None}) > 1:
        named = listed(record.get("code") for record in runs)
        lines.append(f"Runs of {len(codes)} versions of the code: {named}.")
    if layout.kind == "accuracy":
        datasets = dict.fromkeys(entry.keys["dataset"] for entry in entries)
        lines += [_other_features(key) for key, other in STAND_INS.items() if other in datasets]
        lines += _without_edges(datasets, records)
    if set(states) == {"not run"}:
        variant = f" fidelity={records.fidelity}" if records.fidelity not in (None, "paper") else ""
        variant += " scale=smoke" if records.scale == "smoke" else ""
        command = f"python -m robust_diffusion.run experiment={layout.experiment}{variant}"
        view = f"table-{layout.number}-{records.fidelity or 'paper'}"
        lines.append(f"{command} runs it.{published(view) * (records.scale != 'smoke')}")
        variants = {run["fidelity"] for run in records.all_variants.get(layout.experiment, ())}
        lines += [
            f"Records of another variant are there: --fidelity {name} shows them."
            for name in sorted(variants - {records.fidelity, None})
        ]
    return lines


def published(view: str) -> str:
    """Return the place of a published view as a sentence to append; "" if it has none."""
    path = PUBLISHED / "results" / f"{view}.md"
    return f" Published: {path}." if path.is_file() else ""


def by_features(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return the entries on the paper's features, and those on a stand-in's."""
    own: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        (others if entry.keys.get("dataset") in STAND_INS.values() else own).append(entry)
    return own, others


def _stand_in(layout: Layout) -> str | None:
    """Return the dataset that stands in for the table's own, if any."""
    dataset = layout.fixed.keys.get("dataset")
    return None if dataset == layout.fixed.printed.get("dataset") else dataset


def _other_features(dataset: str) -> str:
    """Describe the stand-in of a dataset beside what the paper prints of it."""
    stand_in = STAND_INS[dataset]
    printed = read_yaml(CONFIG_DIR / "dataset" / f"{stand_in}.yaml")["printed"]
    here, (low, high) = printed["in_files"], printed["feature_range"]
    return (
        f"{DATASETS[stand_in]} has the graph, labels and split of the paper's {DATASETS[dataset]}. "
        f"Its features are {here['features']:,} words from Planetoid ({here['feature_range']}); "
        f"the printed numbers are of {printed['features']} others ({low:.2f} .. {high:.2f})."
    )


def _without_edges(datasets: Iterable[str], records: Runs) -> list[str]:
    """Describe the accuracy of an MLP on each dataset, which no attack on edges changes."""
    runs = records.all_variants.get("mlp", ())
    chosen = {
        name: select(runs, {"model": "mlp", "dataset": name}, CLEAN).finished for name in datasets
    }
    texts = []
    for name, finished in chosen.items():
        if values := [100 * run["accuracy"][CLEAN] for run in finished.values()]:
            texts.append(f"{spread(*mean_and_std(values), 2)} on {label_of('dataset', name)}")
    return [f"An MLP, which sees no edge, reaches {', '.join(texts)}."] if texts else []


def _times(layout: Layout, runs: Sequence[Record], states: Mapping[Any, int]) -> list[str]:
    """Describe the machine, the graph and the number of repeats."""
    printed = DATASETS[layout.fixed.printed["dataset"]]
    if not runs:
        options = " or ".join(f"dataset={name}" for name in TIMED)
        return [f"In place of {printed}, {options} can be timed."] if "no data" in states else []
    timings = [record["timing"] for record in runs]

    def span(key: str) -> str:
        low, high = min(t[key] for t in timings), max(t[key] for t in timings)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    def place(t: Mapping[str, Any]) -> str:
        threads = [f"{t['threads']} thread{'s' * (t['threads'] > 1)}"] if t["kind"] == "cpu" else []
        return ", ".join([t["device"], *threads, f"backend {t['backend']}"])

    places = Counter(map(place, timings))
    named = [f"{place} ({n} of {len(runs)} runs)" for place, n in places.items()]
    seeds = ", means over the seeds" if len({record["seed"] for record in runs}) > 1 else ""
    lines = [
        f"Timed on {'; '.join(named if len(places) > 1 else places)}.",
        f"In ms: median and, in brackets, quartiles of {span('repeats')} runs after "
        f"{span('warm_up')} of warm-up{seeds}, of one hidden layer of width "
        f"{span('width')} on {span('nodes')} nodes and {span('edges')} edges; weights are drawn, "
        "not trained.",
        "Printed: the mean of 500 runs on an RTX 3090. Times of two machines are not tested "
        "against each other; × is the time here over the printed one.",
    ]
    if other := _stand_in(layout):
        name = DATASETS.get(other, other)
        lines.insert(0, f"{name} stands in for {printed}; the printed times are {printed}'s.")
    return lines


def _setting(runs: Sequence[Record], attacked: _Attacked, fidelity: str) -> str:
    """Describe the test nodes, the threat model, the variant and the seeds."""
    difficulty = listed(record.get("difficulty") for record in runs if not is_timing(record))
    nodes = f"{difficulty.capitalize()} test nodes, " if difficulty else ""
    threat = ""
    if attacked:
        surrogates = listed(name for _, record in attacked for name in record.get("surrogates", []))
        on = f" on {surrogates}" if surrogates else ""
        threat = f"threat model {listed(record.get('threat') for _, record in attacked)}{on}, "
    seeds = sorted({record["seed"] for record in runs})
    number = f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({listed(seeds)})"
    return f"{nodes}{threat}fidelity={fidelity}, {number}."


def _budget(attacked: _Attacked) -> list[str]:
    """Describe the limits of the attacks, the spent budget, and limits that do not bind them."""
    declared = [record.budget.bounds for _, record in attacked if record.budget]
    spent = {
        attack: spent_ranges([record for name, record in attacked if name == attack], [attack])
        for attack in dict.fromkeys(attack for attack, _ in attacked)
    }
    limits = describe_limits(ranges(declared), {key for counts in spent.values() for key in counts})
    if features := [bounds for budget in declared if (bounds := budget.get("feature_limits"))]:
        low, high = min(low for low, _ in features), max(high for _, high in features)
        limits += f", features from {low:.3g} to {high:.3g}"
    spending = "; ".join(f"{attack} {describe_spent(counts)}" for attack, counts in spent.items())
    exceptions = dict.fromkeys(
        f"{attack}: not bounded by {limit} ({why})."
        for attack, record in attacked
        for limit, why in record.unbounded.get(attack, {}).items()
    )
    return [f"Budget of each attack: {limits}. Spent: {spending}.", *exceptions]


def _options(layout: Layout, runs: Sequence[Record]) -> Mapping[str, int]:
    """Count the runs with options that neither table nor experiment names."""
    paths = {path for line in (layout.fixed, *layout.lines) for path in line.record}
    paths = {path.removeprefix("config.").removeprefix("model.") for path in paths} | layout.swept
    named = paths | {f"model.{key}" for key in paths} | SAID_ELSEWHERE
    return Counter(
        f"{key}={value}"
        for record in runs
        for key, value in record.get("overrides", {}).items()
        if key not in named
        and key.split(".")[0] not in PRESENTATION_KEYS
        and not IGNORED_KEYS.fullmatch(key)
        and not _is_default(key, record, runs)
    )


def _is_default(key: str, record: Record, runs: Sequence[Record]) -> bool:
    """Return whether a run without the option has the same value."""
    value = value_at(record, f"config.{key}")
    # The defaults of datasets and models do not depend on the variant.
    kinds = () if key.startswith("fidelity.") else ("dataset", "model", "flow")
    return value is not ABSENT and any(
        key not in other.get("overrides", {})
        and all(other.get(kind) == record.get(kind) for kind in kinds)
        and value_at(other, f"config.{key}") == value
        for other in runs
    )


@dataclass(frozen=True)
class PaperTable:
    """A table ready to be rendered."""

    layout: Layout
    grids: tuple[tuple[Grid, Entries], ...]  # of the layout, each with its entries
    records: Runs  # that it is made of
    title: str
    lines: Sequence[str]  # remarks on the table as a whole, a sentence each

    def __iter__(self) -> Iterator[tuple[Line, Line, Entry]]:
        """Yield row, column and entry, row by row, grid by grid."""
        for grid, entries in self.grids:
            for row, of_row in zip(grid.rows, entries, strict=True):
                for column, entry in zip(grid.columns, of_row, strict=True):
                    yield row, column, entry


def build_tables(records: Runs) -> dict[int, PaperTable]:
    """Build every table of the paper, by number; see `build_table`."""
    return {number: build_table(load_layout(number), records) for number in table_numbers()}


def build_table(
    layout: Layout, records: Runs, datasets: Collection[str] | None = None
) -> PaperTable:
    """Fill a layout from the records that count; an entry without a number says why.

    It shows the rows and columns of `datasets`, or of all; a remark names the others.
    """
    runs = records.of(layout.experiment)
    layout = whole = fit_layout(layout, runs)
    if datasets is not None:
        included = {None, *datasets}
        layout = layout.changed(
            lambda lines: [line for line in lines if line.keys.get("dataset") in included]
        )
    grids = []
    for grid in layout.grids:
        lines = [[layout.fixed | row | column for column in grid.columns] for row in grid.rows]
        grids.append([[_entry(layout, line, runs, records) for line in row] for row in lines])
    entries = [entry for of_grid in grids for row in of_grid for entry in row]
    mark_fewer_seeds(entries)
    if records.scale != "smoke" and layout.kind == "accuracy":
        for part in by_features(entries):
            compare_entries(part, runs=ASSUMED_RUNS)
    for grid, of_grid in zip(layout.grids, grids, strict=True):
        rank_entries(of_grid, grid.best)
    filled = tuple(zip(layout.grids, grids, strict=True))
    texts = remarks(layout, entries, records)
    if left_out := [name for name in _datasets(whole) if name not in _datasets(layout)]:
        texts.append(f"Not run: {', '.join(left_out)}.")
    return PaperTable(layout, filled, records, title_of(layout, records), texts)


def _datasets(layout: Layout) -> list[str]:
    return list(dict.fromkeys(filter(None, (line.keys.get("dataset") for line in layout.lines))))


def _entry(layout: Layout, line: Line, runs: Sequence[Record], records: Runs) -> Entry:
    printed = layout.printed(line)
    if layout.kind == "budgets":
        config = read_yaml(CONFIG_DIR / "dataset" / f"{line.keys['dataset']}.yaml")
        limit = float(config["budget"][line.keys["limit"]])
        return Entry(line.keys, CLEAN, printed, "measured", mean=limit)
    timed, comparable = layout.kind == "time", records.scale != "smoke"
    graph = CLEAN if timed else line.printed["attack"]
    selection = select(runs, line.record, graph, timed=timed)
    entry = entry_of(line.keys, graph, printed, selection, comparable=comparable, timed=timed)
    entry.marks += stronger_attacks(entry, records)
    return entry
