"""Title of one of the paper's tables, and remarks on the table as a whole."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from robust_diffusion.config import CONFIG_DIR, PUBLISHED, read_yaml
from robust_diffusion.paper.axes import DATASETS, OPTIONS, STAND_INS, label_of
from robust_diffusion.records.identity import IGNORED_KEYS, PRESENTATION_KEYS
from robust_diffusion.records.record import CLEAN
from robust_diffusion.results.budgets import (
    describe_limits,
    describe_spent,
    listed,
    ranges,
    spent_ranges,
)
from robust_diffusion.results.frame import asked_by, settings_by_path
from robust_diffusion.results.view import ASSUMED_RUNS, View, replicates
from robust_diffusion.system.numbers import mean_and_std, spread

if TYPE_CHECKING:
    from robust_diffusion.paper.tables import Layout

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


def title_of(layout: "Layout", scale: str) -> str:
    """Return the title of a fitted layout: number, words, label, and a warning for smoke runs."""
    title = f"{layout.name} ({layout.label}), arXiv:2209.07754"
    if other := _stand_in(layout):
        title += f"; dataset={other} as a stand-in"
    if layout.unlike:
        title += f"; of {', '.join(f'{axis}={value}' for axis, value in layout.fixed.items())}"
    return f"{title}; SMOKE RUN, not comparable with the paper" if scale == "smoke" else title


def remarks(
    layout: "Layout",
    cells: pd.DataFrame,
    rows: pd.DataFrame,
    frame: pd.DataFrame,
    *,
    scale: str,
    fidelity: str,
) -> list[str]:
    """Return the remarks on a table, one sentence each.

    Args:
        layout: The fitted layout.
        cells: Its cells.
        rows: Rows of `frame` that the table is made of.
        frame: All recorded results.
        scale: Scale of the runs.
        fidelity: Their variant.
    """
    if layout.kind == "budgets":
        return ["Edges are counted per injected node, as GRB's attacks do."]
    shown = rows.loc[cells["index"].explode().dropna()]
    states = Counter(cells["state"])
    lines = [SMOKE] if scale == "smoke" else []
    if layout.kind == "time":
        lines += _times(layout, shown, states)
    lines.append(f"Entries: {', '.join(f'{n} {state}' for state, n in states.items())}.")
    if len(shown):
        attacked = shown[shown["attack"] != CLEAN]
        lines.append(_setting(shown, attacked, fidelity))
        lines += _budget(attacked) if len(attacked) else []
    tested = [part["p"].notna().sum() for part in by_features(cells)]
    if any(tested):
        over = f"the table's {tested[0]} comparisons" if tested[0] else ""
        of_others = f"the {tested[1]} of the stand-in" if tested[1] else ""
        lines.append(
            f"p: Welch's t-test against the printed mean and deviation, {ASSUMED_RUNS} runs "
            'assumed behind them (the paper says "5 to 10"); Student\'s where no deviation is '
            f"printed; Holm-corrected over {' and '.join(filter(None, [over, of_others]))}."
        )
    runs = shown.drop_duplicates("run")
    if options := _options(layout, runs):
        counts = (f"{option} in {n} of {len(runs)} runs" for option, n in options.items())
        lines.append(f"Options beyond the table's: {'; '.join(counts)}.")
    if len(codes := {*runs["code"]} - {None}) > 1:
        lines.append(f"Runs of {len(codes)} versions of the code: {listed(runs['code'])}.")
    if layout.kind == "accuracy":
        datasets = dict.fromkeys(cells["dataset"])
        lines += [_other_features(key) for key, other in STAND_INS.items() if other in datasets]
        lines += _without_edges(datasets, frame[frame["scale"] == scale])
    if set(states) == {"not run"}:
        asked = asked_by(frame[frame["scale"] == scale], layout.experiment)
        lines += _not_run(layout, {*asked["variant"]}, scale=scale, fidelity=fidelity)
    return lines


def _not_run(layout: "Layout", variants: set[str], *, scale: str, fidelity: str) -> list[str]:
    variant = f" fidelity={fidelity}" if fidelity != "paper" else ""
    variant += " scale=smoke" if scale == "smoke" else ""
    command = f"python -m robust_diffusion.run experiment={layout.experiment}{variant}"
    view = f"table-{layout.number}-{fidelity}"
    return [
        f"{command} runs it.{published(view) * (scale != 'smoke')}",
        *(
            f"Records of another variant are there: --fidelity {name} shows them."
            for name in sorted(variants - {fidelity})
        ),
    ]


def published(view: str) -> str:
    """Return the place of a published view as a sentence to append; "" if it has none."""
    path = PUBLISHED / "results" / f"{view}.md"
    return f" Published: {path}." if path.is_file() else ""


def by_features(cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the cells on the paper's features, and those on a stand-in's."""
    others = cells["dataset"].isin(STAND_INS.values())
    return cells[~others], cells[others]


def _stand_in(layout: "Layout") -> str | None:
    """Return the dataset that stands in for the table's own, if any."""
    dataset, printed = layout.fixed.get("dataset"), {*layout.printed["dataset"]}
    same = dataset in printed or "dataset" in layout.unlike
    return None if same else dataset


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


def _without_edges(datasets: Iterable[str], frame: pd.DataFrame) -> list[str]:
    """Describe the accuracy of an MLP on each dataset, which no attack on edges changes."""
    view = View(["dataset"], [], select={"model": "mlp", "attack": CLEAN})
    values = replicates(asked_by(frame, "mlp"), view)
    texts = [
        f"{spread(*mean_and_std(values[name,].values()), 2)} on {label_of('dataset', name)}"
        for name in datasets
        if (name,) in values
    ]
    return [f"An MLP, which sees no edge, reaches {', '.join(texts)}."] if texts else []


def _times(layout: "Layout", shown: pd.DataFrame, states: Mapping[Any, int]) -> list[str]:
    """Describe the machine, the graph and the number of repeats."""
    printed = DATASETS[layout.printed["dataset"].iloc[0]]
    if shown.empty:
        options = " or ".join(f"dataset={name}" for name in TIMED)
        return [f"In place of {printed}, {options} can be timed."] if "no data" in states else []
    timings = list(shown["timing"])

    def span(key: str) -> str:
        low, high = min(t[key] for t in timings), max(t[key] for t in timings)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    def place(t: Mapping[str, Any]) -> str:
        threads = [f"{t['threads']} thread{'s' * (t['threads'] > 1)}"] if t["kind"] == "cpu" else []
        return ", ".join([t["device"], *threads, f"backend {t['backend']}"])

    places = Counter(map(place, timings))
    named = [f"{place} ({n} of {len(timings)} runs)" for place, n in places.items()]
    seeds = ", means over the seeds" if len({*shown["seed"]}) > 1 else ""
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
        name = label_of("dataset", other)
        lines.insert(0, f"{name} stands in for {printed}; the printed times are {printed}'s.")
    return lines


def _setting(shown: pd.DataFrame, attacked: pd.DataFrame, fidelity: str) -> str:
    """Describe the test nodes, the threat model, the variant and the seeds."""
    difficulty = listed(shown.loc[shown["timing"].isna(), "difficulty"])
    nodes = f"{difficulty.capitalize()} test nodes, " if difficulty else ""
    threat = ""
    if len(attacked):
        surrogates = listed(name for names in attacked["crafted_on"] for name in names)
        on = f" on {surrogates}" if surrogates else ""
        threat = f"threat model {listed(attacked['threat'])}{on}, "
    seeds = sorted({*shown["seed"]})
    number = f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({listed(seeds)})"
    return f"{nodes}{threat}fidelity={fidelity}, {number}."


def _budget(attacked: pd.DataFrame) -> list[str]:
    """Describe the limits of the attacks, the spent budget, and limits that do not bind them."""
    declared = [budget.bounds for budget in dict.fromkeys(attacked["budget"])]
    by_attack = attacked.groupby("attack", sort=False)["spent"]
    spent = {str(attack): spent_ranges(of_attack) for attack, of_attack in by_attack}
    limits = describe_limits(ranges(declared), {key for counts in spent.values() for key in counts})
    if features := [bounds for budget in declared if (bounds := budget["feature_limits"])]:
        low, high = min(low for low, _ in features), max(high for _, high in features)
        limits += f", features from {low:.3g} to {high:.3g}"
    spending = "; ".join(f"{attack} {describe_spent(counts)}" for attack, counts in spent.items())
    unbounded = zip(attacked["attack"], attacked["unbounded"], strict=True)
    exceptions = dict.fromkeys(
        f"{attack}: not bounded by {limit} ({why})."
        for attack, limits_of in unbounded
        for limit, why in (limits_of or {}).items()
    )
    return [f"Budget of each attack: {limits}. Spent: {spending}.", *exceptions]


def _options(layout: "Layout", runs: pd.DataFrame) -> Mapping[str, int]:
    """Count the runs with options that neither table nor experiment names."""
    axes = {*layout.fixed, *(axis for view in layout.grids for axis in view.axes)}
    paths = axes | {option for axis in axes for option in OPTIONS.get(axis, ())} | layout.swept
    named = paths | {f"{part}.{key}" for key in paths for part in ("model", "budget")}
    named |= SAID_ELSEWHERE
    typed = [asked[layout.experiment][-1].overrides for asked in runs["asked"]]
    kinds = runs[["dataset", "model"]].itertuples(index=False, name=None)
    values = [
        settings_by_path(record) | {f"budget.{key}": x for key, x in record.config.budget.items()}
        for record in runs["record"]
    ]
    of_runs = list(zip(typed, values, kinds, strict=True))

    def is_default(key: str, value: Any, kind: tuple[str, str]) -> bool:
        """Return whether a run without the option has the same value."""
        # The defaults of datasets and models do not depend on the variant.
        return value is not None and any(
            key not in others
            and (key.startswith("fidelity.") or other_kind == kind)
            and known.get(key) == value
            for others, known, other_kind in of_runs
        )

    return Counter(
        f"{key}={text}"
        for overrides, known, kind in of_runs
        for key, text in overrides.items()
        if key not in named
        and key.split(".")[0] not in PRESENTATION_KEYS
        and not IGNORED_KEYS.fullmatch(key)
        and not is_default(key, known.get(key), kind)
    )
