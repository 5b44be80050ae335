"""`robust-diffusion wandb-import`: W&B runs of cells that ran long ago, made of their records."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf
from tqdm import tqdm

from robust_diffusion.commands.records import DEFAULT_RECORDS, read_chosen
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.records import experiments_asking
from robust_diffusion.results.wandb_import import Outcome, WandbImport


def run_wandb_import_command(arguments: Sequence[str]) -> None:
    """Make the runs, and say how many; exits with 1 if any failed, with 130 if interrupted."""
    chosen = _parser().parse_args(arguments)
    if chosen.limit is not None and chosen.limit < 0:
        raise ConfigError(f"--limit {chosen.limit}: below 0; give the most runs to make")
    records = read_chosen(chosen.records or None, required=True, option="")
    asking = experiments_asking(records)
    known = list(dict.fromkeys(name for names in asking.values() for name in names))
    for experiment in chosen.experiment:
        if experiment not in known:
            there = ", ".join(known) or "none"
            raise DataError(f"--experiment {experiment}: no cells in the records; use {there}")
    importer = WandbImport(
        records,
        project=chosen.project,
        directory=chosen.directory,
        store=chosen.store,
        mode=chosen.mode,
        again=chosen.again,
    )
    runs: Counter[Outcome] = Counter()
    tables: Counter[Outcome] = Counter()
    interrupted = False
    try:
        for outcome in _import_cells(importer, chosen.experiment, chosen.limit):
            runs[outcome] += 1
        for experiment in chosen.experiment or known:
            tables.update(importer.import_tables(experiment))
    except KeyboardInterrupt:
        interrupted = True
    sys.stdout.write(
        f"{importer.mode} in {chosen.directory}: {_told(runs, 'run')}; {_told(tables, 'table')}\n"
    )
    if interrupted:
        sys.stderr.write("interrupted: the same command goes on from here\n")
        sys.exit(130)
    if runs["failed"] or tables["failed"]:
        sys.exit(1)


def _import_cells(
    importer: WandbImport, experiments: Sequence[str], limit: int | None
) -> Iterator[Outcome]:
    left = limit
    for record in tqdm(importer.cells(experiments), unit="run", leave=False, disable=None):
        if left == 0:
            return
        outcome = importer.import_cell(record)
        yield outcome
        if left is not None and outcome == "made":
            left -= 1


def _told(outcomes: Counter[Outcome], thing: str) -> str:
    made = outcomes["made"]
    counts = f"{outcomes['passed over']} passed over, {outcomes['failed']} failed"
    return f"{made} {thing}{'' if made == 1 else 's'} made, {counts}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion wandb-import",
        description="Make W&B runs of recorded cells, each tagged with the experiments that asked "
        "for it, and of the tables that they add up to. A cell has one run, however often it is "
        "imported: what was imported before and has not changed is passed over. Nothing is run.",
    )
    parser.add_argument(
        "records",
        nargs="*",
        metavar="RECORDS",
        help=f"files of records (default: {DEFAULT_RECORDS})",
    )
    parser.add_argument(
        "--experiment",
        action="append",
        default=[],
        metavar="NAME",
        help="only cells that this experiment asked for, such as table-3; may be repeated",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="make at most N runs of cells")
    project = OmegaConf.select(OmegaConf.load(CONFIG_DIR / "logger" / "wandb.yaml"), "project")
    parser.add_argument("--project", default=project, help="W&B project (default: %(default)s)")
    parser.add_argument(
        "--mode",
        choices=["auto", "online", "offline"],
        default="auto",
        help="auto (default): what WANDB_MODE says, else online with a key and offline without",
    )
    outputs = Path(DEFAULT_RECORDS).parent
    parser.add_argument(
        "--directory", type=Path, default=outputs, help="for the runs' files (default: %(default)s)"
    )
    parser.add_argument(
        "--store",
        type=Path,
        default=outputs / "store",
        help="folder of models and perturbed graphs (default: %(default)s)",
    )
    parser.add_argument("--again", action="store_true", help="import what was imported before, too")
    return parser
