"""`robust-diffusion wandb-import`: W&B runs of cells that ran long ago, made of their records."""

import argparse
import hashlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import wandb
from omegaconf import OmegaConf
from tqdm import tqdm

from robust_diffusion.cells import loggers
from robust_diffusion.cells.callback import callback_of
from robust_diffusion.commands.reading import DEFAULT_RECORDS, read_chosen
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.records import Record, experiments_asking, latest_by_cell

log = logging.getLogger(__name__)


def run_wandb_import_command(arguments: Sequence[str]) -> None:
    """Make the runs, and say how many; exits with 1 if any failed, with 130 if interrupted."""
    chosen = _parser().parse_args(arguments)
    if chosen.limit is not None and chosen.limit < 0:
        raise ConfigError(f"--limit {chosen.limit}: below 0; give the most runs to make")
    records = read_chosen(chosen.records or None, required=True, option="")
    known = dict.fromkeys(e for names in experiments_asking(records).values() for e in names)
    if unknown := [name for name in chosen.experiment if name not in known]:
        there = ", ".join(known) or "none"
        raise DataError(f"--experiment {unknown[0]}: no cells in the records; use {there}")
    imported = _Imported(chosen)
    counts: Counter[tuple[str, str]] = Counter()
    interrupted = False
    runs = _runs(records, chosen.experiment or known, bool(chosen.experiment), chosen.store)
    try:
        for kind, name, content, make in tqdm(list(runs), leave=False, disable=None):
            if kind == "table" or counts["run", "made"] != chosen.limit:
                counts[kind, imported.add(name, content, make)] += 1
    except KeyboardInterrupt:
        interrupted = True
    told = [
        f"{counts[kind, 'made']} {kind}{'' if counts[kind, 'made'] == 1 else 's'} made, "
        f"{counts[kind, 'passed over']} passed over, {counts[kind, 'failed']} failed"
        for kind in ("run", "table")
    ]
    sys.stdout.write(f"{imported.place['mode']} in {chosen.directory}: {'; '.join(told)}\n")
    if interrupted:
        sys.stderr.write("interrupted: the same command goes on from here\n")
        sys.exit(130)
    if counts["run", "failed"] or counts["table", "failed"]:
        sys.exit(1)


def _runs(
    records: Sequence[Record], experiments: Collection[str], some: bool, store: Path
) -> Iterator[tuple[str, str, Any, "partial[wandb.Run] | None"]]:
    """Per run its kind, its name, its content, and the call that makes it; none for a failure."""
    asking = experiments_asking(records)
    for cell, record in latest_by_cell(records).items():
        by = asking.get(cell, [])
        if not some or set(experiments) & set(by):
            files = list(loggers.files_there(record, store))
            made = partial(loggers.log_finished, record, store, experiments=by)
            yield "run", cell, [record, by, files], None if "error" in record else made
    for experiment in experiments:
        for scale in ("full", "smoke"):
            for frame, tags in callback_of(experiment).tables(experiment, list(records), scale):
                made = partial(loggers.log_table, frame, experiment=experiment, tags=tags)
                yield "table", "-".join([experiment, *tags]), frame.to_csv(), made


class _Imported:
    """Runs that were made of records, listed in a file so that an import can be taken up again."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        mode = loggers.chosen_mode(chosen.mode)
        if mode == "disabled":
            raise ConfigError("WANDB_MODE=disabled: nothing would be imported; unset it")
        self.place = {"project": chosen.project, "directory": str(chosen.directory), "mode": mode}
        self._list = chosen.directory / loggers.FROM_RECORDS / "imported.jsonl"
        known = self._list.is_file() and not chosen.again
        self._lines = set(self._list.read_text("utf-8").splitlines()) if known else set()

    def add(self, name: str, content: Any, make: "partial[wandb.Run] | None") -> str:
        """Make a run unless one of this content was made, and say what became of it."""
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if make is None or self._line(name, digest) in self._lines:
            return "passed over"
        try:
            run = make(**self.place)
        except (wandb.Error, TypeError, ValueError) as error:
            log.warning("%s: %s", name, str(error).splitlines()[0])
            return "failed"
        if run.offline:
            self.place["mode"] = "offline"  # not to wait for the server each time
        self._list.parent.mkdir(parents=True, exist_ok=True)
        with self._list.open("a", encoding="utf-8") as file:
            file.write(f"{self._line(name, digest)}\n")
        return "made"

    def _line(self, name: str, digest: str) -> str:
        place = {key: self.place[key] for key in ("project", "mode")}
        return json.dumps({"run": name, **place, "content": digest})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion wandb-import",
        description="Make W&B runs of recorded cells, each tagged with the experiments that asked "
        "for it, and of the tables that they add up to. A cell has one run, however often it is "
        "imported: what was imported before and has not changed is passed over. Nothing is run.",
    )
    parser.add_argument("records", nargs="*", help=f"files (default: {DEFAULT_RECORDS})")
    experiment = "only cells that this experiment asked for, such as table-3; may be repeated"
    parser.add_argument(
        "--experiment", action="append", default=[], metavar="NAME", help=experiment
    )
    parser.add_argument("--limit", type=int, metavar="N", help="make at most N runs of cells")
    project = OmegaConf.select(OmegaConf.load(CONFIG_DIR / "logger" / "wandb.yaml"), "project")
    parser.add_argument("--project", default=project, help="W&B project (default: %(default)s)")
    mode = "auto (default): what WANDB_MODE says, else online with a key and offline without"
    parser.add_argument("--mode", choices=["auto", "online", "offline"], default="auto", help=mode)
    for option, content in {"directory": "runs' files", "store": "models and graphs"}.items():
        default = Path(DEFAULT_RECORDS).parent / ("store" if option == "store" else "")
        text = f"folder of {content} (default: %(default)s)"
        parser.add_argument(f"--{option}", type=Path, default=default, help=text)
    parser.add_argument("--again", action="store_true", help="import what was imported before, too")
    return parser
