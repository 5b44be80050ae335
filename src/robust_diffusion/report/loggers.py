"""W&B without a key, without a network, and without a question."""

import logging
import netrc
import os
from pathlib import Path
from typing import Literal, cast, get_args

import wandb
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.checks import check_choice

log = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]


def wandb_logger(
    *,
    project: str,
    name: str,
    group: str,
    directory: str,
    mode: Mode | Literal["auto"] = "auto",
    init_timeout: float = 10.0,
) -> WandbLogger:
    """Open a W&B run that never asks and never hangs.

    Args:
        project: W&B project.
        name: Run name.
        group: Runs of one sweep share it.
        directory: Where the run's files go.
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
        chosen = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
        mode = cast(Mode, check_choice("WANDB_MODE", chosen, get_args(Mode)))
    Path(directory).mkdir(parents=True, exist_ok=True)

    def start(mode: Mode) -> wandb.Run:
        return wandb.init(
            project=project,
            name=name,
            group=group,
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


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
