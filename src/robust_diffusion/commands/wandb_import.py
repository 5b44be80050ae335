"""`robust-diffusion wandb-import`: W&B runs and tables made from records."""

import argparse
import json
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import wandb
from tqdm import tqdm

from robust_diffusion.commands.reading import add_project_option, read_chosen
from robust_diffusion.config import DEFAULT_RECORDS
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.experiment import wandb_log
from robust_diffusion.experiment.callback import callback_of
from robust_diffusion.records.records import Record, experiments_asking, latest_by_run
from robust_diffusion.results.captions import differing_keys

log = logging.getLogger(__name__)

Item = tuple[str, str, Any, "partial[Any] | None"]
"""Kind, name and content of a run or table, and the call that logs it, `None` if it failed."""

OUTCOMES = ("made", "skipped", "failed")


def run_wandb_import_command(arguments: Sequence[str]) -> None:
    """Log recorded runs and tables; exit with 1 if any failed, with 130 if interrupted."""
    chosen = _parser().parse_args(arguments)
    if chosen.limit is not None and chosen.limit < 0:
        raise ConfigError(f"--limit: expected at least 0, got {chosen.limit}")
    if (mode := wandb_log.chosen_mode(chosen.mode)) == "disabled":
        raise ConfigError("WANDB_MODE=disabled: nothing would be imported; unset it")
    wandb_log.check_project("--project", chosen.project)
    place = {"project": chosen.project, "directory": str(chosen.directory), "mode": mode}
    items = list(_items(read_chosen(chosen.records or None, required=True, option=""), chosen))
    counts: Counter[str] = Counter()
    status = 0
    try:
        _import(items, chosen, place, counts)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the same command goes on from here\n")
        status = 130
    shown = [f"{counts[key]} {key}" for key in map(" ".join, product(("runs", "tables"), OUTCOMES))]
    sys.stdout.write(f"{place['mode']} in {chosen.directory}: {', '.join(shown)}\n")
    if status or counts["runs failed"] or counts["tables failed"]:
        sys.exit(status or 1)


def _import(
    items: Sequence[Item],
    chosen: argparse.Namespace,
    place: dict[str, str],
    counts: Counter[str],
) -> None:
    """Log runs and tables, except those that the ledger lists with the same content."""
    ledger = chosen.directory / wandb_log.FROM_RECORDS / "imported.jsonl"
    done = set(ledger.read_text("utf-8").splitlines() if ledger.is_file() else ())
    for kind, name, content, log_it in tqdm(items, leave=False, disable=None):
        if kind == "runs" and counts["runs made"] == chosen.limit:
            continue
        outcome, digest = "skipped", sha256(json.dumps(content, sort_keys=True).encode())
        entry = {"run": name, "project": chosen.project, "content": digest.hexdigest()}
        if log_it and (chosen.again or json.dumps(entry | {"mode": place["mode"]}) not in done):
            try:
                run, outcome = log_it(**place), "made"
            except (wandb.Error, TypeError, ValueError) as error:
                log.warning("%s: %s", name, str(error).splitlines()[0])
                outcome = "failed"
        if outcome == "made":
            if run.offline:
                place["mode"] = "offline"  # so that the next run does not wait for the server
            ledger.parent.mkdir(parents=True, exist_ok=True)
            with ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry | {"mode": place["mode"]}) + "\n")
        counts[f"{kind} {outcome}"] += 1


def _items(records: Sequence[Record], chosen: argparse.Namespace) -> Iterator[Item]:
    """Yield the runs, then the tables, that the options select."""
    asking, sweeps = experiments_asking(records), defaultdict(list)
    known = dict.fromkeys(experiment for by in asking.values() for experiment in by)
    for experiment in chosen.experiment:
        if experiment not in known:
            there = ", ".join(known) or "none"
            raise DataError(f"--experiment {experiment}: no runs in the records; use {there}")
    latest = latest_by_run(records)
    for record in latest.values():
        sweeps[wandb_log.sweep_of(record)].append(record.get("overrides", {}))
    swept = {sweep: differing_keys(runs) if sweep else [] for sweep, runs in sweeps.items()}
    for run, record in latest.items():
        by = asking.get(run, [])
        if not chosen.experiment or set(chosen.experiment) & set(by):
            log_it = partial(
                wandb_log.log_finished,
                record,
                chosen.store,
                experiments=by,
                name=wandb_log.run_name(record, swept[wandb_log.sweep_of(record)]),
            )
            files = list(wandb_log.stored_files(record, chosen.store))
            yield "runs", run, [record, by, files], None if "error" in record else log_it
    for experiment, scale in product(chosen.experiment or known, ("full", "smoke")):
        for table, tags in callback_of(experiment).tables(experiment, list(records), scale):
            log_it = partial(wandb_log.log_table, table, sweep=experiment, tags=tags)
            yield "tables", "-".join([experiment, *tags]), table.to_csv(), log_it


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
    add_project_option(parser)
    mode = "auto (default): WANDB_MODE if set, else online with a key and offline without"
    add("--mode", choices=["auto", "online", "offline"], default="auto", help=mode)
    folder = Path(DEFAULT_RECORDS).parent
    text = "folder of {} (default: %(default)s)"
    add("--directory", type=Path, default=folder, help=text.format("the runs' files"))
    add("--store", type=Path, default=folder / "store", help=text.format("models and graphs"))
    add("--again", action="store_true", help="also import what was imported before")
    return parser
