"""Runs of one scale and variant, and the selection of runs for an entry of a table."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from robust_diffusion.records.identity import ModelKey, settings_of, trained_model
from robust_diffusion.records.records import (
    CLEAN,
    Record,
    by_experiment,
    has_values,
    is_tested,
    is_timing,
)


class Runs:
    """Runs of one scale and variant, by the experiments that requested them.

    Args:
        records: Records in the order in which they were appended.
        scale: `full` or `smoke`.
        fidelity: Variant; `None` for all.
    """

    def __init__(
        self, records: Iterable[Record], *, scale: str = "full", fidelity: str | None = None
    ) -> None:
        self.scale, self.fidelity = scale, fidelity
        self.all_variants = by_experiment(records, scale=scale)
        self._runs = {
            name: [run for run in runs if fidelity in (None, run.get("fidelity"))]
            for name, runs in self.all_variants.items()
        }

    def of(self, experiment: str) -> list[Record]:
        """Return the runs of an experiment, in the order of their last request."""
        return self._runs.get(experiment, [])

    @cached_property
    def by_model(self) -> Mapping[ModelKey, list[Record]]:
        """Finished runs of all experiments, by the trained model that they tested."""
        by_model: dict[ModelKey, list[Record]] = {}
        runs = {run["run"]: run for asked in self._runs.values() for run in asked}
        for run in filter(is_tested, runs.values()):
            by_model.setdefault(trained_model(run), []).append(run)
        return by_model


class Selection(NamedTuple):
    """Runs of one entry, which only differ in their seed."""

    finished: Mapping[int, Record]  # the latest finished run by seed
    failed: Mapping[int, Record]  # a failed run by seed, for seeds without a finished one
    left_out: int  # number of runs with other settings


def select(
    runs: Iterable[Record], wanted: Mapping[str, Any], graph: str, *, timed: bool = False
) -> Selection:
    """Return the runs of one entry.

    If runs differ in other settings than the seed, such as a shortened trial run, only the settings
    that were requested last count, so that no mean is taken over different settings.

    Args:
        runs: Runs of the table's experiment, in the order of `by_experiment`.
        wanted: Dotted path in a record -> required value.
        graph: Test graph: clean, or the name of an attack.
        timed: Select runs that timed a step instead of those that tested a model.
    """
    # Grouped by settings, in the order of the last request.
    variants: dict[str, list[Record]] = {}
    for run in runs:
        if has_values(run, wanted) and is_timing(run) == timed and _has_graph(run, graph):
            settings = settings_of(run, graph)
            variants[settings] = [*variants.pop(settings, []), run]
    if not variants:
        return Selection({}, {}, 0)
    some_finished = [v for v in variants.values() if any("error" not in run for run in v)]
    selected = (some_finished or list(variants.values()))[-1]
    finished = {run["seed"]: run for run in selected if "error" not in run}
    # A run may have failed because its seed is not a number.
    of_a_seed = [run for run in selected if isinstance(run["seed"], int)]
    failed = {run["seed"]: run for run in of_a_seed if "error" in run}
    return Selection(
        finished=dict(sorted(finished.items())),
        failed={seed: failed[seed] for seed in sorted(failed.keys() - finished.keys())},
        left_out=sum(map(len, variants.values())) - len(selected),
    )


def _has_graph(run: Record, graph: str) -> bool:
    if is_timing(run):
        return graph == CLEAN
    if "error" not in run:
        return graph in run["accuracy"]
    return graph == CLEAN or graph in run.get("config", {}).get("attacks", {})
