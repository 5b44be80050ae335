"""`robust-diffusion wandb-import`: W&B runs and tables made from records."""

import argparse
import hashlib
import json
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import wandb
from omegaconf import OmegaConf
from tqdm import tqdm

from robust_diffusion.cells import wandb_log
from robust_diffusion.cells.callback import callback_of
from robust_diffusion.commands.reading import DEFAULT_RECORDS, read_chosen
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.records import Record, experiments_asking, latest_by_cell
from robust_diffusion.results.table import differing_keys

log = logging.getLogger(__name__)

Item = tuple[str, str, Any, "partial[Any] | None"]
"""Kind, name and content of a run or table, and the call that logs it; none for a failed run."""

OUTCOMES = ("made", "skipped", "failed")


def run_wandb_import_command(arguments: Sequence[str]) -> None:
    """Log recorded runs and tables; exit with 1 if any failed, with 130 if interrupted."""
    chosen = _parser().parse_args(arguments)
    if chosen.limit is not None and chosen.limit < 0:
        raise ConfigError(f"--limit: expected at least 0, got {chosen.limit}")
    records = read_chosen(chosen.records or None, required=True, option="")
    known = dict.fromkeys(chain.from_iterable(experiments_asking(records).values()))
    if unknown := [name for name in chosen.experiment if name not in known]:
        there = ", ".join(known) or "none"
        raise DataError(f"--experiment {unknown[0]}: no runs in the records; use {there}")
    if (mode := wandb_log.chosen_mode(chosen.mode)) == "disabled":
        raise ConfigError("WANDB_MODE=disabled: nothing would be imported; unset it")
    place = {"project": chosen.project, "directory": str(chosen.directory), "mode": mode}
    counts: Counter[tuple[str, str]] = Counter()
    status = 0
    try:
        _import(list(_items(records, chosen, known)), chosen, place, counts)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the same command goes on from here\n")
        status = 130
    shown = [
        f"{kind}s: " + ", ".join(f"{counts[kind, of]} {of}" for of in OUTCOMES)
        for kind in ("run", "table")
    ]
    sys.stdout.write(f"{place['mode']} in {chosen.directory}: {'; '.join(shown)}\n")
    if status or counts["run", "failed"] or counts["table", "failed"]:
        sys.exit(status or 1)


def _import(
    items: Sequence[Item],
    chosen: argparse.Namespace,
    place: dict[str, str],
    counts: Counter[tuple[str, str]],
) -> None:
    """Log runs and tables, but for what the ledger in the folder of runs has with this content."""
    ledger = chosen.directory / wandb_log.FROM_RECORDS / "imported.jsonl"
    done = set(ledger.read_text("utf-8").splitlines() if ledger.is_file() else ())
    for kind, name, content, log_it in tqdm(items, leave=False, disable=None):
        if kind == "run" and counts["run", "made"] == chosen.limit:
            continue
        if log_it is None or (_entry(name, content, place) in done and not chosen.again):
            counts[kind, "skipped"] += 1
            continue
        try:
            run = log_it(**place)
        except (wandb.Error, TypeError, ValueError) as error:
            log.warning("%s: %s", name, str(error).splitlines()[0])
            counts[kind, "failed"] += 1
            continue
        if run.offline:
            place["mode"] = "offline"  # so that the next run does not wait for the server
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{_entry(name, content, place)}\n")
        counts[kind, "made"] += 1


def _entry(name: str, content: Any, place: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    target = {key: place[key] for key in ("project", "mode")}
    return json.dumps({"run": name, **target, "content": digest})


def _items(
    records: Sequence[Record], chosen: argparse.Namespace, known: Iterable[str]
) -> Iterator[Item]:
    """Yield every run, then every table, that the options choose."""
    asking, sweeps = experiments_asking(records), defaultdict(list)
    latest, wanted = latest_by_cell(records), set(chosen.experiment)
    for record in latest.values():
        sweeps[wandb_log.sweep_of(record)].append(record.get("overrides", {}))
    swept = {sweep: differing_keys(of) if sweep else [] for sweep, of in sweeps.items()}
    for cell, record in latest.items():
        by, store = asking.get(cell, []), chosen.store
        if not wanted or wanted & set(by):
            name = wandb_log.run_name(record, swept[wandb_log.sweep_of(record)])
            log_it = partial(wandb_log.log_finished, record, store, experiments=by, name=name)
            files = list(wandb_log.stored_files(record, store))
            yield "run", cell, [record, by, files], None if "error" in record else log_it
    for experiment in chosen.experiment or known:
        for scale in ("full", "smoke"):
            for table, tags in callback_of(experiment).tables(experiment, list(records), scale):
                log_it = partial(wandb_log.log_table, table, sweep=experiment, tags=tags)
                yield "table", "-".join([experiment, *tags]), table.to_csv(), log_it


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion wandb-import",
        description="Log recorded runs to W&B, each tagged with the experiments that asked for it, "
        "and the tables they add up to. Unchanged runs that were imported before are skipped. "
        "Nothing is run.",
    )
    add = parser.add_argument
    add("records", nargs="*", help=f"files (default: {DEFAULT_RECORDS})")
    experiment = "only runs that this experiment asked for, such as table-3; may be repeated"
    add("--experiment", action="append", default=[], metavar="NAME", help=experiment)
    add("--limit", type=int, metavar="N", help="import at most N runs")
    project = OmegaConf.select(OmegaConf.load(CONFIG_DIR / "logger" / "wandb.yaml"), "project")
    add("--project", default=project, help="W&B project (default: %(default)s)")
    mode = "auto (default): WANDB_MODE if set, else online with a key and offline without"
    add("--mode", choices=["auto", "online", "offline"], default="auto", help=mode)
    folder = Path(DEFAULT_RECORDS).parent
    text = "folder of {} (default: %(default)s)"
    add("--directory", type=Path, default=folder, help=text.format("the runs' files"))
    add("--store", type=Path, default=folder / "store", help=text.format("models and graphs"))
    add("--again", action="store_true", help="also import what was imported before")
    return parser
