"""Remarks on the table of times: machine, graph, number of repeats."""

from collections import Counter
from collections.abc import Iterable, Sequence

from robust_diffusion.paper.axes import DATASETS, STAND_INS
from robust_diffusion.paper.layout import Layout
from robust_diffusion.records.records import Record

TIMED = ("planetoid_citeseer", "cora")
"""Datasets to time for those who lack the table's own, the most alike first."""


def stand_in(layout: Layout) -> str | None:
    """The dataset that stands in for the table's own, if one does."""
    dataset = layout.fixed.keys.get("dataset")
    own = dataset == layout.fixed.printed.get("dataset") and dataset not in STAND_INS.values()
    return None if own else dataset


def describe_stand_ins(datasets: Iterable[str]) -> list[str]:
    """That nothing is published of the stand-ins among the datasets, a sentence each."""
    shown = set(datasets)
    return [
        f"{DATASETS[other]} stands in for the paper's {DATASETS[own]}, which is another graph; "
        "the paper has no number of it."
        for own, other in STAND_INS.items()
        if other in shown
    ]


def describe_times(layout: Layout, records: Sequence[Record], states: Sequence[str]) -> list[str]:
    """Remarks on the times of a table, of whose entries the states are given, a sentence each."""
    own = DATASETS[layout.fixed.printed["dataset"]]
    if not records:
        options = " or ".join(f"dataset={name}" for name in TIMED)
        return [f"In place of {own}, {options} can be timed."] if "no data" in states else []
    timings = [record["timing"] for record in records]
    places = Counter(_place(record) for record in records)
    named = [f"{place} ({n} of {len(records)} cells)" for place, n in places.items()]
    seeds = ", means over the seeds" if len({record["seed"] for record in records}) > 1 else ""
    lines = [
        f"Timed on {'; '.join(named if len(places) > 1 else places)}.",
        f"In ms: median and, in brackets, quartiles of {_range(timings, 'repeats')} runs after "
        f"{_range(timings, 'warm_up')} of warm-up{seeds}, of one hidden layer of width "
        f"{_range(timings, 'width')} on {_range(timings, 'nodes')} nodes and "
        f"{_range(timings, 'edges')} edges; weights are drawn, not trained.",
        "Printed: the mean of 500 runs on an RTX 3090. Times of two machines are not tested "
        "against each other; × is the time here over the printed one.",
    ]
    if other := stand_in(layout):
        name = DATASETS.get(other, other)
        lines.insert(0, f"{name} stands in for {own}; the printed times are {own}'s.")
    return lines


def _place(record: Record) -> str:
    timing = record["timing"]
    threads = f"{timing['threads']} thread{'s' if timing['threads'] > 1 else ''}"
    details = [threads] if timing["kind"] == "cpu" else []
    return ", ".join([timing["device"], *details, f"backend {timing['backend']}"])


def _range(timings: Sequence[Record], key: str) -> str:
    low, high = min(t[key] for t in timings), max(t[key] for t in timings)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
