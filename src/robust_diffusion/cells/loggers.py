"""W&B as the logger of a cell: without a key, without a network and without a question."""

import logging
import netrc
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from urllib.parse import urlsplit

import pandas as pd

from robust_diffusion.checks import check_choice
from robust_diffusion.records.records import Record
from robust_diffusion.results.frame import model_name

if TYPE_CHECKING:
    import wandb  # elsewhere where it is used: it takes a second, and most cells go without
    from pytorch_lightning.loggers import WandbLogger

log = logging.getLogger(__name__)

Mode = Literal["online", "offline", "disabled"]

INSTALL = "pip install 'robust-diffusion[wandb]'"

FROM_RECORDS = "from-records"
"""Folder of the runs that were made of records: uploaded, they add to a run that is there."""

NOT_OF_A_RECORD = dict.fromkeys(
    ("x_disable_stats", "x_disable_meta", "x_disable_machine_info", "disable_git", "disable_code"),
    True,
) | {"disable_job_creation": True, "console": "off", "x_save_requirements": False}
"""Settings that keep machine and code out of a run made of a record, in a tenth of the time."""

SUMMARY = (
    *("accuracy", "mean_accuracy", "attacked", "val_accuracy", "flags"),
    *("epochs", "nfe", "seconds", "timing"),
)
"""Parts of a record that W&B shows as the summary of a run, as far as the cell has them."""


def wandb_logger(
    *,
    record: Record,
    project: str,
    directory: str,
    name: str | None = None,
    experiments: Sequence[str] = (),
    tags: Sequence[str] = (),
    mode: Mode | Literal["auto"] = "auto",
    init_timeout: float = 10.0,
    finished: bool = False,
) -> "WandbLogger":
    """Open the W&B run of a cell, which never asks and never hangs.

    A cell has one run, whose id is the cell's. Computed again, it replaces the former one.

    Args:
        record: Of the cell, or the part of it that is known before anything is computed.
        project: W&B project.
        directory: Folder of the run's files.
        name: Run name; `None` for dataset, model, threat and seed. The configuration has the rest.
        experiments: Experiments that have asked for the cell, such as table-3: a tag each.
        tags: Further tags, besides the choices of the cell.
        mode: `online`, `offline`, `disabled`, or `auto`: what the environment
            variable `WANDB_MODE` says, else online with a key and offline without; disabled if W&B
            is not installed.
        init_timeout: Seconds to wait for the server before falling back to offline.
        finished: The cell was computed before. Curves and tags that its run may have on the server
            are kept; files go to `from-records`, which `make wandb-sync` uploads likewise.

    Returns:
        A Lightning logger around the open run; close it with `wandb.finish()`.
    """
    from pytorch_lightning.loggers import WandbLogger

    choices = (record.get(key) for key in ("dataset", "model", "flow", "threat", "fidelity"))
    experiment = record["experiment"]
    run = _open_run(
        project=project,
        directory=str(Path(directory) / FROM_RECORDS) if finished else directory,
        mode=mode,
        init_timeout=init_timeout,
        finished=finished,
        tags=[tag for tag in (*choices, *tags, *experiments) if tag],
        id=str(record["cell"]),
        name=name or short_name(record),
        group=record["dataset"] if experiment == "none" else experiment,
        job_type="cell",
    )
    return WandbLogger(experiment=run, log_model=False)


def short_name(record: Record) -> str:
    """Dataset, model, threat and seed of a cell."""
    parts = (record["dataset"], model_name(record), record.get("threat"), record.get("seed"))
    return " ".join(str(part) for part in parts if part is not None)


def where_logged(project: str, mode: Mode | Literal["auto"], directory: str | Path) -> str:
    """The place of the W&B runs below a folder, in a line; "" if there is none."""
    if list(Path(directory).glob("**/wandb/offline-run-*")):
        return f"W&B: offline, below {directory}; `make wandb-sync` uploads the runs"
    return "" if chosen_mode(mode) == "disabled" else f"W&B: project {project}"


def _open_run(
    *,
    directory: str,
    mode: Mode | Literal["auto"],
    tags: Sequence[str],
    init_timeout: float = 10.0,
    finished: bool = False,
    **about: Any,
) -> "wandb.Run":
    import wandb

    _be_quiet()
    mode, tags = chosen_mode(mode), list(dict.fromkeys(tags))
    Path(directory).mkdir(parents=True, exist_ok=True)
    own: dict[str, Any] = NOT_OF_A_RECORD if finished else {}

    def start(mode: Mode) -> wandb.Run:
        resumes = finished and mode == "online"
        return wandb.init(
            **about,
            tags=None if resumes else tags,
            dir=str(Path(directory).resolve()),  # W&B writes in a process of its own
            mode=mode,
            resume="allow" if resumes else None,
            reinit="finish_previous",
            settings=wandb.Settings(init_timeout=init_timeout, **own),
        )

    try:
        run = start(mode)
    except wandb.Error as error:
        if mode != "online":
            raise
        reason = str(error).splitlines()[0]
        log.warning("logger=wandb: %s; logging offline, upload later with `wandb sync`", reason)
        wandb.teardown()  # or its service would go on holding the id
        run = start("offline")
    # Given at the start, tags would replace those that a resumed run has.
    if missing := [tag for tag in tags if tag not in (run.tags or ())]:
        run.tags = (*(run.tags or ()), *missing)
    return run


def chosen_mode(mode: Mode | Literal["auto"]) -> Mode:
    """The mode itself; of `auto`, what `WANDB_MODE` says, else online with a key.

    Without W&B, whose package is an extra, `auto` is disabled, which a line says once.
    """
    check_choice("logger.wandb.mode", mode, ["auto", *get_args(Mode)])
    if mode != "auto":
        return mode
    if find_spec("wandb") is None:
        return _without_wandb()
    chosen = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
    return cast(Mode, check_choice("WANDB_MODE", chosen, get_args(Mode)))


@cache  # once per process
def _without_wandb() -> Mode:
    log.warning("logger=wandb: not installed, no run is logged; %s", INSTALL)
    return "disabled"


def log_record(run: "wandb.Run", record: Record, store: Path) -> None:
    """Put a cell's record, and the files of `store` that it names, into its open W&B run."""
    import wandb

    kept = {key: value for key, value in record.items() if key != "config"}
    run.config.update({"record": kept}, allow_val_change=True)  # type: ignore[no-untyped-call]
    spent = record.get("budget", {}).get("spent", {})
    shown: Any = {key: record[key] for key in SUMMARY if key in record}
    # Of several attacked models the most that an attack spent.
    shown["spent"] = {a: pd.DataFrame(of).max(axis=1).to_dict() for a, of in spent.items()}
    run.summary.update(pd.json_normalize(shown, sep="/").to_dict("records")[0])
    for name, path in files_there(record, store).items():
        # W&B allows fewer characters in a name than a test graph's can have.
        plain = re.sub(r"[^\w.-]", "-", name)
        kind = "model" if name == "victim" else "perturbed-graph"
        artifact = wandb.Artifact(f"{record['cell']}-{plain}", type=kind)
        # The store does not change a file once it is written, so W&B need not copy it.
        artifact.add_file(str(path), policy="immutable", skip_cache=True)
        run.log_artifact(artifact)


def files_there(record: Record, store: Path) -> dict[str, Path]:
    """Files of the store that a record names, by their content, as far as they are there."""
    # Others may have written the record: it is no way to files outside the store.
    return {
        name: store / file
        for name, file in record.get("files", {}).items()
        if Path(file).name == file and (store / file).is_file()
    }


def log_finished(
    record: Record,
    store: Path,
    open_run: "Callable[..., WandbLogger]" = wandb_logger,
    **options: Any,
) -> "wandb.Run":
    """Make the run of a finished cell from its record, or add its tags to the run that is there.

    `options` are those of `open_run` that are not of the record. The run, finished, is returned.
    """
    logger = open_run(record=record, finished=True, **options)
    run: wandb.Run = logger.experiment
    try:
        logger.log_hyperparams(record.get("config", {}))
        log_record(run, record, store)
    finally:
        run.finish()
    return run


def log_table(
    frame: pd.DataFrame, *, experiment: str, tags: Sequence[str] = (), **place: Any
) -> "wandb.Run":
    """Log a table as a run of its own in the group of its experiment's cells.

    A former table of the same experiment and tags is replaced. `place` is `project`, `directory`
    and `mode`, as in `wandb_logger`; the run, finished, is returned.
    """
    import wandb

    run = _open_run(
        tags=[experiment, *tags],
        id="-".join([experiment, *tags]),
        name=experiment,
        group=experiment,
        job_type="table",
        **place,
    )
    try:
        # W&B infers one type per column, and a column of numbers and gaps has two.
        run.log({experiment: wandb.Table(dataframe=frame.astype(str))})
    finally:
        run.finish()
    return run


def has_key() -> bool:
    """True if there is an API key of the W&B server that is in use."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    _be_quiet()
    url = os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url
    # Older versions keep the key of W&B's own server under another name.
    former = ["api.wandb.ai"] if url == wandb.Settings().base_url else []
    try:
        hosts = netrc.netrc(os.environ.get("NETRC")).hosts
    except (OSError, netrc.NetrcParseError):
        return False
    return any(host in hosts for host in (urlsplit(url).netloc, *former))


def _be_quiet() -> None:
    # Before anything else, since W&B reads its settings once.
    os.environ.setdefault("WANDB_SILENT", "true")
    # Error reports go to a server of W&B's; a run that may be offline sends nothing.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
