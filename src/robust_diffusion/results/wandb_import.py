"""Records of finished cells as W&B runs, made or completed long after the cells ran."""

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.records import Record, experiments_asking, latest_by_cell
from robust_diffusion.results.callback import callback_of
from robust_diffusion.results.loggers import (
    FROM_RECORDS,
    Mode,
    chosen_mode,
    files_there,
    log_finished,
    log_table,
    wandb_logger,
)

log = logging.getLogger(__name__)

Outcome = Literal["made", "passed over", "failed"]

IMPORTED = "imported.jsonl"
"""File beside the runs: a line for each that was made, so that an import can be taken up again."""


class WandbImport:
    """Makes the W&B runs of cells and the tables that they add up to.

    What was imported before and has not changed since is passed over.

    Args:
        records: References and failures among them.
        project: W&B project.
        directory: Where the runs' files go.
        store: Folder of the files that records name, as far as they are there.
        mode: As in `wandb_logger`.
        again: Import what was imported before, too.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        project: str,
        directory: Path,
        store: Path,
        mode: Mode | Literal["auto"] = "auto",
        again: bool = False,
    ) -> None:
        self.records = list(records)
        self.mode = chosen_mode(mode)
        if self.mode == "disabled":
            raise ConfigError("WANDB_MODE=disabled: nothing would be imported; unset it")
        self._project, self._directory, self._store = project, directory, store
        self._asking = experiments_asking(records)
        self._imported = set() if again else _read_lines(self._list)

    def cells(self, experiments: Collection[str] = ()) -> list[Record]:
        """The record of each cell that one of these experiments asked for; of every cell if none.

        Cells that never finished come as the failure that they left.
        """
        wanted = set(experiments)
        return [
            record
            for cell, record in latest_by_cell(self.records).items()
            if not wanted or wanted & set(self._asking.get(cell, ()))
        ]

    def import_cell(self, record: Record) -> Outcome:
        """Make the run of a cell, tagged with every experiment that asked for it."""
        if "error" in record:
            return "passed over"
        experiments = self._asking.get(record["cell"], [])
        content = [record, experiments, list(files_there(record, self._store))]
        line = self._line(str(record["cell"]), content)
        open_run = partial(wandb_logger, experiments=experiments, **self._place)
        return self._import(line, partial(log_finished, record, open_run, self._store))

    def import_tables(self, experiment: str) -> Iterator[Outcome]:
        """Make the runs that hold an experiment's tables."""
        for scale in ("full", "smoke"):
            for frame, tags in callback_of(experiment).tables(experiment, self.records, scale):
                yield self._import_table(experiment, frame, tags)

    def _import_table(self, experiment: str, frame: pd.DataFrame, tags: list[str]) -> Outcome:
        line = self._line("-".join([experiment, *tags]), frame.to_csv())
        options: Any = {"experiment": experiment, "tags": tags, **self._place}
        return self._import(line, partial(log_table, frame, **options))

    def _import(self, line: str, make: partial[Any]) -> Outcome:
        import wandb

        if line in self._imported:
            return "passed over"
        try:
            run = make()
        except (wandb.Error, TypeError, ValueError) as error:
            log.warning("%s: %s", json.loads(line)["run"], str(error).splitlines()[0])
            return "failed"
        if run.offline and self.mode == "online":
            self.mode = "offline"  # not to wait for the server each time
            line = json.dumps(json.loads(line) | {"mode": self.mode})
        self._list.parent.mkdir(parents=True, exist_ok=True)
        with self._list.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return "made"

    @property
    def _place(self) -> dict[str, Any]:
        return {"project": self._project, "directory": str(self._directory), "mode": self.mode}

    @property
    def _list(self) -> Path:
        return self._directory / FROM_RECORDS / IMPORTED

    def _line(self, run: str, content: Any) -> str:
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return json.dumps(
            {"run": run, "project": self._project, "mode": self.mode, "content": digest}
        )


def _read_lines(path: Path) -> set[str]:
    return set(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else set()
