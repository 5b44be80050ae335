"""The Hydra callback that prints the result table when a run or a sweep is over."""

import os
import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from robust_diffusion.evaluation.records import Record, latest_by_cell, read_records
from robust_diffusion.report.markdown import print_table
from robust_diffusion.report.table import summarize


class PrintResults(Callback):
    """Prints the table of the cells that this run or sweep has recorded."""

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the row of a single cell, unless it failed: its error speaks for it."""
        records = _records_below(config, Path(config.hydra.run.dir))
        if records and not any("error" in record for record in records):
            _show(records)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table of all cells, and exit non-zero if any failed."""
        records = _records_below(config, Path(config.hydra.sweep.dir))
        if records:
            _show(records)
        # Hydra swallows a callback's exceptions, but not an exit.
        if any("error" in record for record in records):
            sys.exit(1)


def _records_below(config: DictConfig, directory: Path) -> list[Record]:
    records = read_records(config.paths.records)
    start = Path(os.path.relpath(directory, Path(config.paths.records).parent))
    mine = [r for r in records if start in (Path(r["directory"]), *Path(r["directory"]).parents)]
    # A cell that was done before left a reference; its result is where it was first recorded.
    done = latest_by_cell(records)
    mine = [
        done[r["cell"]] | {key: r[key] for key in ("job", "overrides")} if "reference" in r else r
        for r in mine
    ]
    # Parallel cells finish in any order; the table keeps the order of the sweep.
    return sorted(mine, key=lambda record: record["job"])


def _show(records: list[Record]) -> None:
    result = summarize(records)
    print_table(result.title, result.cells, result.keys, result.notes)
