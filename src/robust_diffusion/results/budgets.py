"""Spent budgets, their limits and cut trainings in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from robust_diffusion.records.record import Record

Range = tuple[float, float]

_COUNTS = {
    "injected_nodes": "nodes",
    "injected_edges": "edges",
    "changed_nodes": "nodes changed",
    "added_edges": "edges added",
    "removed_edges": "edges removed",
    "largest_feature_change": "largest change",
}
"""Counts of a spent budget -> words, in the order in which they are listed."""

PATIENCE = 500
"""Patience of early stopping in the paper's protocol, in epochs."""

INJECTION_LIMITS = {
    "max_injected_nodes": "{} nodes",
    "max_edges_per_injected_node": "{} edges each",
    "max_injected_edges": "{} edges in all",
}

MODIFICATION_LIMITS = {
    "node_ratio": "{} of the target nodes",
    "edge_ratio": "{} of their edges",
    "epsilon": "features by {}",
}


def listed(values: Iterable[Any]) -> str:
    """Return the distinct known values as one text."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def spent_ranges(spent: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, Range]:
    """Return the range of each count above 0 that attacks spent, each on some models."""
    return ranges(
        {count: used for count, used in by_count.items() if used}
        for by_model in spent
        for by_count in by_model.values()
    )


def describe_spent(spent: Mapping[str, Range]) -> str:
    """Describe spent counts in words, such as `50 nodes, 2500 edges`."""
    return ", ".join(
        f"{as_text(spent[key])} {word}" for key, word in _COUNTS.items() if key in spent
    )


def describe_limits(declared: Mapping[str, Range], spent: Iterable[str]) -> str:
    """Describe the declared limits that apply to attacks with these spent counts.

    Attacks that spent nothing count as injections.
    """
    counts = set(spent)
    texts = INJECTION_LIMITS if "injected_nodes" in counts or not counts else {}
    if counts & {"changed_nodes", "added_edges", "removed_edges"}:
        texts = texts | MODIFICATION_LIMITS
    return ", ".join(
        text.format(as_text(declared[key])) for key, text in texts.items() if key in declared
    )


def describe_budget(records: Sequence[Record]) -> str:
    """Describe the spent budget, and the declared limits unless an injection used them up."""
    spent = spent_ranges(by_model for record in records for by_model in record.spent.values())
    declared = ranges(record.budget.bounds for record in records if record.budget)
    limits = describe_limits(declared, spent)
    if not spent:
        return f"at most {limits}"
    nodes, edges = (declared.get(key, (0, 0)) for key in list(INJECTION_LIMITS)[:2])
    whole = {"injected_nodes": nodes, "injected_edges": (nodes[0] * edges[0], nodes[1] * edges[1])}
    counts = {count: used for count, used in spent.items() if count in _COUNTS}
    used_up = counts == whole and "max_injected_edges" not in declared
    return f"spent {describe_spent(spent)}" + ("" if used_up else f" of at most {limits}")


def describe_cuts(records: Iterable[Record]) -> list[str]:
    """Describe smoke runs and shortened trainings, one phrase each."""
    return list(dict.fromkeys(chain.from_iterable(map(_cuts, records))))


def ranges(counts: Iterable[Mapping[str, Any]]) -> dict[str, Range]:
    """Return the smallest and largest value of each key with numbers."""
    values: dict[str, list[float]] = {}
    for count in counts:
        for key, value in count.items():
            if isinstance(value, int | float):
                values.setdefault(key, []).append(value)
    return {key: (min(numbers), max(numbers)) for key, numbers in values.items()}


def as_text(bounds: Range) -> str:
    """Format a range: counts as integers, shares and widths to four digits."""
    low, high = (f"{x:.0f}" if float(x).is_integer() else f"{x:.4g}" for x in bounds)
    return low if low == high else f"{low} to {high}"


def _cuts(record: Record) -> Iterator[str]:
    if record.scale == "smoke":
        yield "SMOKE RUN"
    training = record.config.training
    epochs, steps = training.get("max_epochs"), (training.get("trainer") or {}).get("max_steps")
    patience = training.get("patience")
    # Early stopping waits for `patience` epochs, so it never stops such a short training.
    if isinstance(epochs, int) and isinstance(patience, int) and epochs <= patience:
        yield f"training cut at {epochs} epochs"
    elif isinstance(patience, int) and patience < PATIENCE:
        yield f"early stopping after {patience} epochs, not {PATIENCE}"
    if isinstance(steps, int) and steps >= 0:
        yield f"training cut at {steps} steps"
