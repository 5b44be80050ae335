"""W&B without a key, without a network, and without a question."""

import logging
import netrc
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

import pandas as pd
import wandb
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.checks import check_choice
from robust_diffusion.evaluation.records import Record
from robust_diffusion.results.captions import ranges

log = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]

FORMER_HOST = "api.wandb.ai"
"""Host of W&B's own server, under which older versions of wandb keep its key."""

SUMMARY = (
    *("accuracy", "mean_accuracy", "attacked", "val_accuracy"),
    *("epochs", "nfe", "seconds", "timing"),
)
"""Parts of a record that W&B shows as the summary of a run, as far as the cell has them."""


def wandb_logger(
    *,
    project: str,
    directory: str,
    name: str | None = None,
    experiment: str = "none",
    dataset: str | None = None,
    job_type: str = "cell",
    tags: Sequence[str] = (),
    mode: Mode | Literal["auto"] = "auto",
    init_timeout: float = 10.0,
) -> WandbLogger:
    """Open a W&B run that never asks and never hangs.

    Args:
        project: W&B project.
        directory: Where the run's files go.
        name: Run name; `None` lets W&B pick one.
        experiment: What the run belongs to, such as table-3: its group.
        dataset: The group of a run that belongs to no experiment.
        job_type: `cell`, or `table` for the table that the cells add up to.
        tags: What to find the run by.
        mode: `online`, `offline`, `disabled`, or `auto`: what the environment
            variable `WANDB_MODE` says, else online with a key and offline without.
        init_timeout: Seconds to wait for the server before falling back to offline.

    Returns:
        A Lightning logger around the open run; close it with `wandb.finish()`.
    """
    # Error reports go to a server of W&B's; a run that may be offline sends nothing.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    check_choice("logger.mode", mode, ["auto", *get_args(Mode)])
    if mode == "auto":
        chosen = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
        mode = cast(Mode, check_choice("WANDB_MODE", chosen, get_args(Mode)))
    Path(directory).mkdir(parents=True, exist_ok=True)

    def start(mode: Mode) -> wandb.Run:
        return wandb.init(
            project=project,
            name=name or None,
            group=dataset if experiment == "none" else experiment,
            job_type=job_type,
            tags=[tag for tag in tags if tag],
            dir=directory,
            mode=mode,
            reinit="finish_previous",
            settings=wandb.Settings(init_timeout=init_timeout),
        )

    try:
        run = start(mode)
    except wandb.Error as error:
        if mode != "online":
            raise
        reason = str(error).splitlines()[0]
        log.warning("logger=wandb: %s; logging offline, upload later with `wandb sync`", reason)
        run = start("offline")
    return WandbLogger(experiment=run, log_model=False)


def log_record(run: wandb.Run, record: Record, store: Path) -> None:
    """Put a cell's record and the files of `store` that it names into its open W&B run."""
    run.config["record"] = {key: value for key, value in record.items() if key != "config"}
    shown = {key: record[key] for key in SUMMARY if key in record} | {"spent": _spent(record)}
    for name, value in _flat(shown).items():
        run.summary[name] = value
    for name, file in record.get("files", {}).items():
        kind = "model" if name == "victim" else "perturbed-graph"
        # W&B allows fewer characters in a name than a test graph's can have.
        plain = re.sub(r"[^\w.-]", "-", name)
        artifact = wandb.Artifact(f"{record['cell']}-{plain}", type=kind)
        # The store does not change a file once it is written, so W&B need not copy it.
        artifact.add_file(str(store / file), policy="immutable", skip_cache=True)
        run.log_artifact(artifact)


def log_table(
    frame: pd.DataFrame,
    *,
    project: str,
    experiment: str,
    directory: str,
    mode: Mode | Literal["auto"] = "auto",
    tags: Sequence[str] = (),
) -> None:
    """Log a table as a run of its own in the group of its experiment's cells.

    The other arguments are those of `wandb_logger`.
    """
    own: dict[str, Any] = {
        "name": experiment,
        "experiment": experiment,
        "job_type": "table",
        "mode": mode,
    }
    run = wandb_logger(project=project, directory=directory, tags=tags, **own).experiment
    try:
        # W&B infers one type per column, and a column of numbers and gaps has two.
        run.log({experiment: wandb.Table(dataframe=frame.astype(str))})
    finally:
        run.finish()


def _spent(record: Record) -> dict[str, dict[str, float]]:
    """Per attack what it used of its budget, the most over the attacked models."""
    return {
        attack: {count: most for count, (_, most) in ranges(models.values()).items()}
        for attack, models in record["budget"].get("spent", {}).items()
    }


def _flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{path}{key}"
        flat |= _flat(value, f"{name}/") if isinstance(value, dict) else {name: value}
    return flat


def has_key() -> bool:
    """True if there is an API key of the W&B server that is in use."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    url = os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url
    hosts = {urlsplit(url).netloc}
    if url == wandb.Settings().base_url:
        hosts.add(FORMER_HOST)
    try:
        logins = netrc.netrc(os.environ.get("NETRC"))
    except (OSError, netrc.NetrcParseError):
        return False
    return any(logins.authenticators(host) is not None for host in hosts)
