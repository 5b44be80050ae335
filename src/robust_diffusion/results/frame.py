"""Recorded results as one tidy data frame, from which tables, curves and comparisons are made."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from robust_diffusion.records.identity import (
    once_per_configuration,
    recorded_settings,
    trained_parts,
    without_trainer,
)
from robust_diffusion.records.record import CLEAN, Record, Request
from robust_diffusion.records.records import merged
from robust_diffusion.results.evidence import outcomes_of, poisons

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
    "seed": ("object", "seed"),
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
    "clean": ("float64", "accuracy of the run on the clean graph"),
    "retrained": ("bool", "whether the model was trained on the attacked graph"),
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
    "warnings": ("object", "warnings about the accuracy, one line each"),
    "spent": ("object", "budget that the attack spent, by the model it attacked"),
    "unbounded": ("object", "limits that do not bind the attack, and why"),
    "seconds": ("float64", "median time of one step, in a run that timed it"),
    "timing": ("object", "how that step was timed; none in a run that tested a model"),
    "error": ("object", "reason of a failure; none of a finished run"),
    "error_kind": ("object", "kind of the failure, such as `DataError`"),
    "difficulty": ("object", "subset of the test nodes"),
    "solver": ("object", "name of the solver, if the model has one"),
    "nfe": ("float64", "evaluations of the flow in a forward pass"),
    "epochs": ("float64", "trained epochs"),
    "crafted_on": ("object", "names of the surrogates of a black box"),
    "planned": ("object", "graphs to test: `clean`, and the attacks of the configuration"),
    "code": ("object", "version of the code that computed the run"),
    "asked": ("object", "experiment -> its requests for the run, the last one last"),
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
    rows["settings"] = rows["record"].map(settings_by_path)
    rows = rows[[*COLUMNS]]
    paths = sorted({path for row in rows["settings"] for path in row} - COLUMNS.keys())
    columns = {path: [_hashable(row.get(path)) for row in rows["settings"]] for path in paths}
    differing = {path: values for path, values in columns.items() if len({*map(str, values)}) > 1}
    # Missing if a row lacks the setting.
    settings = pd.DataFrame(differing, index=rows.index, dtype=object).infer_objects()
    # A copy joins the blocks that `infer_objects` leaves, one per column; else each column that a
    # user adds makes pandas warn.
    return pd.concat([rows, settings], axis=1).copy()


def _hashable(value: Any) -> Any:
    """Convert lists to tuples, so that rows can be grouped by them."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def asked_by(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return the rows of the runs that an experiment asked for, in the order of its last requests.

    Args:
        rows: Rows of `frame`.
        experiment: Name of the experiment.
    """
    asked = rows["asked"].tolist()  # ten times faster to go through
    last = {i: of[experiment][-1].order for i, of in enumerate(asked) if experiment in of}
    return expected_graphs(rows.iloc[sorted(last, key=last.__getitem__)])


def expected_graphs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `frame` with one row of a failed run for each graph that it was meant for."""
    if rows["error"].isna().all():
        return rows
    meant = zip(rows["error"], rows["attack"], rows["planned"], strict=True)
    graphs = [graph if error is None else names for error, graph, names in meant]
    return rows.assign(attack=graphs).explode("attack")


def differing_keys(rows: Sequence[Mapping[Any, Any]], first: Sequence[str] = ()) -> list[str]:
    """Return the keys in which rows differ, those in `first` before the others."""
    keys = dict.fromkeys([*first, *(key for row in rows for key in row)])
    return [key for key in keys if len({row.get(key, "") for row in rows}) > 1]


def narrow_frame(
    records: Iterable[Record], *, experiments: Collection[str] | None = None
) -> pd.DataFrame:
    """Return `frame` without settings, which take most of the time.

    With `experiments`, only the runs that any of these asked for.
    """
    records = [*records] if isinstance(records, Iterator) else records
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS if name != "settings"}
    for record in merged(records):
        asked: dict[str, tuple[Request, ...]] = {}
        for request in record.requests:
            asked[request.experiment] = (*asked.get(request.experiment, ()), request)
        if experiments is not None and asked.keys().isdisjoint(experiments):
            continue
        common, results = _common(record) | {"asked": asked}, list(_results(record))
        for name, values in columns.items():
            if name in common:
                values.extend([common[name]] * len(results))
            else:
                values.extend(result.get(name) for result in results)
    types: Mapping[str, Any] = {name: COLUMNS[name][0] for name in columns}
    return pd.DataFrame(columns, dtype=object).astype(types)


def _common(record: Record) -> dict[str, Any]:
    """Return the columns that all rows of a run share."""
    budget = record.budget
    leak = {"degree_leak"} if record.config.data.get("degree_leak", False) else set()
    own = ("run", "dataset", "threat", "seed", "difficulty", "solver", "nfe", "epochs", "code")
    return {
        **{key: getattr(record, key) for key in (*own, "scale", "split", "error", "error_kind")},
        "experiments": tuple(record.experiments),
        "variant": record.fidelity,
        "model": record.model_name,
        "budget": budget,
        "nodes": budget and budget.max_injected_nodes,
        "edges": budget and budget.max_edges_per_injected_node,
        "victim_flags": frozenset({*record.flags.get("victim", []), *leak}),
        "retrained": poisons(record),
        "validation": record.val_accuracy,
        "timing": (record.timing or {}) if record.is_timing else None,
        "crafted_on": tuple(record.surrogates),
        "planned": (CLEAN, *record.config.attacks),
        "record": record,
    }


def _results(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the columns that differ between the graphs of a run."""
    if record.error:
        yield {}
    elif record.is_timing:
        yield {"attack": CLEAN, "seconds": record.seconds["diffusion"]}
    else:
        outcomes = outcomes_of(record)
        for graph, accuracy in record.accuracy.items():
            yield outcomes.get(graph, {}) | {
                "attack": graph,
                "accuracy": accuracy,
                "clean": record.accuracy[CLEAN],
                "flags": frozenset(record.flags.get(graph, [])),
                "warnings": tuple(record.warnings.get(graph, [])),
                "spent": record.spent.get(graph, {}),
                "unbounded": record.unbounded.get(graph, {}),
            }


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
        rows_of = [settings_by_path(record) for record in alike["record"]]
        paths = sorted({path for settings in rows_of for path in settings})
        leaves = [{path: str(row.get(path, "none")) for path in paths} for row in rows_of]
        differing = differing_keys(leaves)
        for run, model, texts in zip(alike.index, alike["model"], leaves, strict=True):
            names[run] = ", ".join([model, *(f"{path}={texts[path]}" for path in differing)])
    pairs = zip(rows["run"], rows["model"], strict=True)
    return rows.assign(model=[names.get(run, model) for run, model in pairs])


@once_per_configuration
def settings_by_path(record: Record) -> dict[str, Any]:
    """Return the settings of model, training and data by the paths of their overrides."""
    parts = trained_parts(recorded_settings(record))
    data = dict(parts["data"] or {})
    raw = data.pop("source", None)
    source = {k: v for k, v in raw.items() if k not in _NO_OPTIONS} if isinstance(raw, dict) else {}
    parts |= {"data": data, "dataset": {"source": source}}
    # A fixed flow is only set by `model.flow`.
    groups = _GROUPS - ({"model.flow."} if record.model != "graph_pde" else set())
    return dict(_leaves(without_trainer(parts), groups))


def _leaves(node: Any, groups: Collection[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by the paths under which they are typed."""
    path = path.partition(".")[2] if path in groups else path
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield from _leaves(child, groups, f"{path}{key}.")
    else:
        yield path.removesuffix("."), node
