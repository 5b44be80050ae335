"""Recorded results as one tidy data frame, from which tables, curves and comparisons are made."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from robust_diffusion.records.identity import (
    once_per_configuration,
    recorded_settings,
    trained_parts,
    without_trainer,
)
from robust_diffusion.records.records import (
    CLEAN,
    Record,
    is_timing,
    latest_by_run,
    model_name,
)
from robust_diffusion.results.captions import differing_keys
from robust_diffusion.results.evidence import outcomes_of

COLUMNS: Mapping[str, tuple[str, str]] = {
    "run": ("object", "id of the run"),
    "experiments": ("object", "every experiment that asked for the run, in that order"),
    "scale": ("object", "`full` or `smoke`"),
    "dataset": ("object", "name of the dataset"),
    "variant": ("object", "variant of the equations: `paper`, `released`"),
    "model": ("object", "the model, or its flow; `beltrami, adversary` if it was trained with one"),
    "settings": (
        "object",
        "settings of model, training and data by their paths, as typed in an override",
    ),
    "draw": ("object", "seed, or hash of the weights of a model from elsewhere"),
    "split": ("object", "hash of the split"),
    "threat": (
        "object",
        "threat model: `black_box`, `white_box`, `adaptive`, `poisoning`, or a user's",
    ),
    "budget": ("object", "declared limits, a `Budget`"),
    "nodes": ("Int64", "most injected nodes"),
    "edges": ("Int64", "most edges of each injected node"),
    "attack": ("object", "`clean`, or the name of the attack; none in a run that failed"),
    "accuracy": ("float64", "accuracy on the test nodes of that graph, in 0..1"),
    "chance": ("float64", "accuracy under random injection or random flips"),
    "transfer": ("float64", "accuracy under an attack crafted on surrogates"),
    "white_box": (
        "float64",
        "accuracy where the attacker knows the model; the lowest over the attack's parts",
    ),
    "adaptive": ("float64", "accuracy where the attacker also knows the defense"),
    "surrogates": ("object", "surrogates that a transferred attack was crafted on"),
    "version": ("Int64", "version of `auto`, if it attacked"),
    "by": ("object", "the attack with its most harmful part, or its threat model"),
    "flags": ("object", "set of codes that speak against the accuracy as a bound"),
    "victim_flags": ("object", "set of such codes of the model itself"),
    "validation": ("float64", "accuracy on the clean validation nodes, in 0..1"),
    "seconds": ("float64", "median time of one step, in a run that timed it"),
    "error": ("object", "reason of a failure; none of a finished run"),
    "record": ("object", "the whole record"),
}
"""Columns of `frame`: the type of each, and its meaning."""

_GROUPS = frozenset(["model.flow.", "model.solver.", "training.adversary.", "data.batching."])
_GROUPS |= {"model.threads."}
"""Parts of a run that are typed by their own names, without the first."""

_NO_OPTIONS = frozenset(["_target_", "folder", "name", "path", "seed", "split", "split_seed"])
"""Keys of a dataset's source that are covered by its name, the hash of its files, or the seed."""


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """Return recorded results: one row per run and test graph, clean or attacked.

    Args:
        records: Records from `read_records`. The latest finished record of a run counts, or its
            latest failure if there is none.

    Returns:
        Rows in the order of the records. The columns are those of `COLUMNS`, then one per setting
        in which runs differ, named by its path (`flow.rate`, `training.max_epochs`), for use in a
        `groupby`. A run that failed, or that timed a step, has one row without an accuracy.

    Raises:
        ConfigError: `records` is not a list of records.

    Examples:
        >>> from robust_diffusion import Budget, frame
        >>> from robust_diffusion.records import Record
        >>> about = {"run": "a", "dataset": "cora", "model": "gcn", "seed": 0}
        >>> attacked = {"threat": "white_box", "budget": Budget(5, 4)}
        >>> record = Record(**about, **attacked, accuracy={"clean": 0.8, "pgd": 0.3})
        >>> frame([record])[["model", "attack", "accuracy", "white_box"]]
          model attack  accuracy  white_box
        0   gcn  clean       0.8        NaN
        1   gcn    pgd       0.3        0.3
    """
    rows = narrow_frame(records)
    paths = sorted({path for row in rows["settings"] for path in row} - COLUMNS.keys())
    columns = {path: [_hashable(row.get(path)) for row in rows["settings"]] for path in paths}
    differing = {path: values for path, values in columns.items() if len({*map(str, values)}) > 1}
    # Missing if a row lacks the setting.
    settings = pd.DataFrame(differing, index=rows.index, dtype=object).infer_objects()
    return pd.concat([rows, settings], axis=1)


def _hashable(value: Any) -> Any:
    """Convert lists to tuples, so that rows can be grouped by them."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def narrow_frame(records: Iterable[Record]) -> pd.DataFrame:
    """Return `frame` without the columns of settings; views use the column `settings` instead."""
    records = [*records] if isinstance(records, Iterator) else records
    latest = latest_by_run(records)
    types: Mapping[str, Any] = {name: kind for name, (kind, _) in COLUMNS.items()}
    rows = [
        common | row
        for record in latest.values()
        for common in [_common(record)]
        for row in _results(record)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(types)


def _common(record: Record) -> dict[str, Any]:
    """Return the columns that all rows of a run share."""
    config = record.get("config", {})
    budget = record.budget
    victim = set(record.get("flags", {}).get("victim", []))
    if (config.get("data") or {}).get("degree_leak", False):
        victim.add("degree_leak")
    return {
        "run": record["run"],
        "experiments": tuple(record.experiments),
        "scale": record.get("scale", "full"),
        "dataset": record.get("dataset"),
        "variant": record.get("fidelity"),
        "model": model_name(record) if "model" in record else None,
        "settings": {} if "error" in record else _settings(record),
        "draw": record.get("weights", record.get("seed")),
        "split": str(record.get("split", "")),
        "threat": record.get("threat"),
        "budget": budget,
        "nodes": budget and budget.max_injected_nodes,
        "edges": budget and budget.max_edges_per_injected_node,
        "victim_flags": frozenset(victim),
        "validation": record.get("val_accuracy"),
        "record": record,
    }


def _results(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the columns that differ between the graphs of a run."""
    if "error" in record:
        yield {"error": record["error"]}
    elif is_timing(record):
        yield {"attack": CLEAN, "seconds": record["seconds"]["diffusion"]}
    else:
        flags, outcomes = record.get("flags", {}), outcomes_of(record)
        for graph, accuracy in record["accuracy"].items():
            row = {"attack": graph, "accuracy": accuracy, "flags": frozenset(flags.get(graph, []))}
            yield outcomes.get(graph, {}) | row


def named_by_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Extend `model` by the settings in which models of the same name differ.

    For example, a sweep over `flow.rate` trains several models named `grand`, and no table may take
    the mean or the lowest accuracy over them. If models of the same dataset, variant and name
    differ in settings, they are renamed to `grand, flow.rate=0.5`. Splits count as draws, not as
    settings.
    """
    runs = rows.drop_duplicates("run").set_index("run")
    names: dict[str, str] = {}
    for _, alike in runs[runs["accuracy"].notna()].groupby(["dataset", "variant", "model"]):
        paths = sorted({path for settings in alike["settings"] for path in settings})
        leaves = [{path: str(row.get(path, "none")) for path in paths} for row in alike["settings"]]
        differing = differing_keys(leaves)
        for run, model, texts in zip(alike.index, alike["model"], leaves, strict=True):
            names[run] = ", ".join([model, *(f"{path}={texts[path]}" for path in differing)])
    pairs = zip(rows["run"], rows["model"], strict=True)
    return rows.assign(model=[names.get(run, model) for run, model in pairs])


@once_per_configuration
def _settings(record: Record) -> dict[str, Any]:
    parts = trained_parts(recorded_settings(record))
    data = dict(parts["data"] or {})
    raw = data.pop("source", None)
    source = {k: v for k, v in raw.items() if k not in _NO_OPTIONS} if isinstance(raw, dict) else {}
    parts |= {"data": data, "dataset": {"source": source}}
    # A fixed flow is only set by `model.flow`.
    groups = _GROUPS - ({"model.flow."} if record.get("model") != "graph_pde" else set())
    return dict(_leaves(without_trainer(parts), groups))


def _leaves(node: Any, groups: Collection[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by the paths under which they are typed."""
    path = path.partition(".")[2] if path in groups else path
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield from _leaves(child, groups, f"{path}{key}.")
    else:
        yield path.removesuffix("."), node
