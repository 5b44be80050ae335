"""Hydra callback that prints the result table at the end of a run or a sweep."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, get_args

import pandas as pd
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from robust_diffusion.checks import check_choice
from robust_diffusion.config import DEFAULT_RECORDS
from robust_diffusion.errors import EscapedError
from robust_diffusion.experiment.wandb_log import (
    chosen_mode,
    group_of,
    log_table,
    where_logged,
)
from robust_diffusion.records.header import sweep_name
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import read_requested, read_sweep
from robust_diffusion.results.show import show
from robust_diffusion.results.sweeps import Shown, sweep_table

Tagged = tuple[pd.DataFrame, list[str]]
"""A table, and tags that distinguish it from other tables of its sweep."""


class PrintResults(Callback):
    """Callback that prints a table of the recorded runs at the end of a run or a sweep.

    It `shows` accuracies on the `test` graphs or on the clean graph's `validation` nodes, the
    `worst_case` of each model, or the `changes` (`validation_changes`) from setting to setting, or
    several of these.
    """

    def __init__(self, shows: str | Sequence[str] = "test") -> None:
        names, known = [shows] if isinstance(shows, str) else shows, get_args(Shown)
        self._shows = [check_choice("hydra.callbacks.results.shows", name, known) for name in names]

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the row of a single run, unless it failed and its error is shown instead."""
        with _past_hydra():
            records = _records_of(config, config.hydra.run.dir)
            if records and not any(record.error for record in records):
                self._show(records)
                _print_places(config, config.hydra.run.dir, records)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table of all runs, and exit non-zero if any failed."""
        with _past_hydra():
            records = _records_of(config, config.hydra.sweep.dir)
            sys.stderr.write("\n" * bool(records))  # ends the lines of the runs
            _log_tables(config, list(self.show_sweep(config, records)))
            if records:
                _print_places(config, config.hydra.sweep.dir, records)
        if any(record.error for record in records):
            sys.exit(1)

    def show_sweep(self, config: DictConfig, records: list[Record]) -> Iterator[Tagged]:
        """Print the table of a sweep's runs, failed ones included, and yield it for W&B."""
        if records:
            yield self._show(records), [config.hydra.runtime.choices.get("scale", "full")]

    def _show(self, records: list[Record]) -> pd.DataFrame:
        tables = [sweep_table(records, shown) for shown in self._shows]  # type: ignore[arg-type]
        sys.stdout.writelines(f"{show(table)}\n" for table in tables)
        return tables[0].cells


def _log_tables(config: DictConfig, tables: Sequence[Tagged]) -> None:
    """Log a sweep's tables to W&B if its runs are logged there."""
    wandb = (config.get("logger") or {}).get("wandb")
    if wandb and chosen_mode(wandb.mode) != "disabled":
        experiment, folder = config.hydra.runtime.choices.experiment, config.hydra.sweep.dir
        planned = read_sweep(sweep_name(config, folder), config.paths.records)
        sweep = group_of(experiment, planned) or Path(folder).name
        place = {"project": wandb.project, "mode": wandb.mode, "directory": folder}
        for table, tags in tables:
            log_table(table, sweep=sweep, tags=tags, **place)


def _print_places(config: DictConfig, directory: str, records: Sequence[Record]) -> None:
    """Print where the results are, and what to do next."""
    path, wandb = config.paths.records, (config.get("logger") or {}).get("wandb")
    flag = "" if path == DEFAULT_RECORDS else f" --records {quote(path)}"
    failed = any(record.error for record in records)
    places = {
        "records": path,
        "logs": os.path.relpath(directory),
        "W&B": where_logged(wandb.project, wandb.mode, directory) if wandb else "",
        "next": "the same command runs what failed again"
        if failed
        else f"robust-diffusion report{flag} writes all results as one HTML page",
    }
    lines = [f"{name:<8} {place}\n" for name, place in places.items() if place]
    sys.stdout.write("".join(lines))


@contextmanager
def _past_hydra() -> Iterator[None]:
    """Let errors reach the command line; Hydra would turn them into warnings and exit with 0."""
    try:
        yield
    except Exception as error:
        raise EscapedError from error


def _records_of(config: DictConfig, directory: str) -> list[Record]:
    """Return the runs that the command in this folder asked for, in its order."""
    return read_requested(config.paths.records, sweep_name(config, directory))
