"""W&B runs and tables, opened without a prompt, and offline if there is no key or network."""

import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import pandas as pd
from requests.utils import get_netrc_auth

from robust_diffusion.checks import Positive, check_choice, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.progress import swept_keys
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import Sweep
from robust_diffusion.system.hashes import canonical_json

if TYPE_CHECKING:
    import wandb  # an optional dependency that takes a second to import

log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline", "disabled"]

FROM_RECORDS = "from-records"
"""Folder of W&B runs that were created from records; uploading them updates an existing run."""

QUICK: dict[str, Any] = {"console": "off", "x_save_requirements": False, "x_disable_meta": True}
QUICK |= {f"disable_{key}": True for key in ("code", "git", "job_creation")}
QUICK |= {"x_disable_stats": True, "x_disable_machine_info": True}
"""Settings of a W&B run created from a record: ten times faster, without data of this machine."""

DESCRIBES_RUN = (
    *("experiment", "scale", "dataset", "difficulty", "model", "flow", "solver", "fidelity"),
    *("threat", "surrogates", "seed", "overrides", "run", "code", "user_code"),
    *("user_files", "revision", "versions", "backend", "processor", "directory", "job", "time"),
    *("split", "split_drawn", "reused", "files"),
)
"""Parts of a record that describe the run; they go to the W&B configuration, under `run`."""


@validated("logger.wandb")
def open_run(
    *,
    record: Record,
    directory: str,
    name: str | None = None,
    sweep: Sweep | None = None,
    tags: Sequence[str] = (),
    finished: bool = False,
    **place: Any,
) -> "wandb.Run":
    """Open the W&B run of a record, or of the part of a record that is known before the run.

    The W&B run has the record's id, so a repeated run replaces the former one. If the run is
    `finished`, the curves and tags on the server stay. See `conf/logger/wandb.yaml`.
    """
    choices = [record.dataset, record.model, record.flow, record.threat, record.fidelity]
    run = _start(
        f"{directory}/{FROM_RECORDS}" if finished else directory,
        tags=[*choices, *tags, *record.experiments],
        finished=finished,
        id=record.run,
        name=name or run_name(record, swept_keys(sweep) if sweep else ()),
        group=group_of(record.experiment, sweep),
        job_type="run",
        **place,
    )
    run.config.update(settings(record), allow_val_change=True)  # type: ignore[no-untyped-call]
    # Otherwise the summary would hold the last epoch's values.
    run.define_metric("epoch", summary="none")
    run.define_metric("*", step_metric="epoch", summary="none")
    return run


def run_name(record: Record, swept: Sequence[str] = ()) -> str:
    """Return the values of the keys `swept`; of a run that differs in none, what it is of."""
    overrides = record.overrides
    parts = [
        overrides[key] if key in ("dataset", "model", "flow") else f"{key}={overrides[key]}"
        for key in swept
        if key in overrides
    ]
    parts = parts or [record.dataset, record.model_name, f"seed={record.seed}"]
    return " ".join(parts)[:128]  # W&B's limit


def group_of(experiment: str, sweep: Sweep | None) -> str | None:
    """Return the experiment of a run, else its sweep; `None` for a single run.

    A sweep is named by what it varies and a hash of its runs, so that it has the same name when the
    same command takes it up again.
    """
    if experiment != "none" or sweep is None:
        return None if experiment == "none" else experiment
    runs = sorted(canonical_json(run.overrides, "sweep") for run in sweep.runs)
    digest = hashlib.sha256("\n".join(runs).encode()).hexdigest()[:6]
    return " ".join([*swept_keys(sweep), digest])[:128]


def close_run(run: "wandb.Run", failure: type[BaseException] | None, *_: Any) -> None:
    """Finish a W&B run, and mark it if what it logged was interrupted or failed."""
    if failure is not None:
        mark = "failed" if issubclass(failure, Exception) else "interrupted"
        run.tags = (*(run.tags or ()), mark)
    run.finish(exit_code=int(failure is not None))


@validated("logger.wandb")
def _start(
    directory: str,
    *,
    tags: Sequence[str | None],
    mode: Mode = "auto",
    init_timeout: Positive = 10.0,
    finished: bool = False,
    **about: Any,
) -> "wandb.Run":
    project = str(about.get("project"))
    if sign := re.search(r"[/\\#?%:]", project):
        remedy = "name a team by the environment variable WANDB_ENTITY"
        raise ConfigError(
            f"logger.wandb.project={project}: expected a name without {sign[0]}; {remedy}"
        )
    package, mode = _wandb(), chosen_mode(mode)
    folder, labels = Path(directory).resolve(), tuple(dict.fromkeys(t[:64] for t in tags if t))
    folder.mkdir(parents=True, exist_ok=True)
    options = package.Settings(init_timeout=init_timeout, **(QUICK if finished else {}))
    about |= {"dir": str(folder), "reinit": "finish_previous", "settings": options}
    # Tags passed at the start would replace those of a resumed run.
    start = {"resume": "allow"} if finished and mode == "online" else {"tags": labels}
    try:
        run: wandb.Run = package.init(mode=mode, **start, **about)
    except package.Error as error:
        if mode != "online":
            raise
        reason = str(error).splitlines()[0]
        log.warning("logger=wandb: %s; logging offline, upload later with `wandb sync`", reason)
        package.teardown()  # otherwise its service keeps holding the id
        run = package.init(mode="offline", tags=labels, **about)
    if not set(labels) <= set(run.tags or ()):
        run.tags = tuple(dict.fromkeys((*(run.tags or ()), *labels)))
    return run


def settings(record: Record) -> dict[str, Any]:
    """Return the W&B configuration of a run, without results."""
    # Some choices, such as `attack`, are only recorded as overrides.
    typed = {key: value for key, value in record.overrides.items() if "." not in key}
    described = record.model_dump(include={*DESCRIBES_RUN}, exclude_unset=True, exclude_none=True)
    return record.config.whole | {"seed": record.seed, "run": typed | described}


def results(record: Record) -> dict[str, Any]:
    """Return the W&B summary of a run: one name per number, with `/` between nested names."""
    shown = record.model_dump(exclude_unset=True, exclude={"config", *DESCRIBES_RUN})
    shown["spent"] = {name: _most([*on.values()]) for name, on in record.spent.items()}
    # One name per number.
    mean, lowest = record.mean_accuracy, record.accuracy
    shown["mean_accuracy"] = {k: v for k, v in mean.items() if v != lowest.get(k)}
    shown["attacked"] = {on: shares for on, shares in record.attacked.items() if on != "victim"}
    flat = pd.json_normalize(shown, sep="/").to_dict("records")[0]
    return {str(key): v for key, v in flat.items() if v not in (None, {}, [])}


def _most(spent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the largest budget spent on any of several models; the widest for a range."""
    most: dict[str, Any] = {}
    for key in dict.fromkeys(key for one in spent for key in one):
        values = [one[key] for one in spent if one.get(key) is not None]
        if values and isinstance(values[0], list | tuple):
            most[key] = [min(low for low, _ in values), max(high for _, high in values)]
        elif values:
            most[key] = max(values)
    return most


def log_record(run: "wandb.Run", record: Record, store: Path) -> None:
    """Log a record, and the cached files that it names, to its open W&B run."""
    run.config.update(settings(record), allow_val_change=True)  # type: ignore[no-untyped-call]
    run.summary.update(results(record))
    for name, path in stored_files(record, store).items():
        # W&B allows fewer characters in a name than a test graph may have.
        plain = re.sub(r"[^\w.-]", "-", name) if len(name) <= 64 else path.stem
        kind = "model" if name == "victim" else "perturbed-graph"
        artifact = _wandb().Artifact(f"{record.run}-{plain}"[:128], type=kind)
        # Cached files never change, so W&B need not copy them.
        artifact.add_file(str(path), policy="immutable", skip_cache=True)
        run.log_artifact(artifact)


def stored_files(record: Record, store: Path) -> dict[str, Path]:
    """Return the existing cached files of a record, by their content."""
    # Records may be untrusted, so their paths must not lead out of the cache.
    files = {name: store / file for name, file in record.files.items()}
    return {name: path for name, path in files.items() if _is_inside(path, store)}


def _is_inside(path: Path, store: Path) -> bool:
    """Return whether a path is a file of the cache; a link could lead to any file."""
    return path.parent == store and not path.is_symlink() and path.is_file()


def log_table(
    table: pd.DataFrame, *, sweep: str, directory: str, tags: Sequence[str] = (), **place: Any
) -> "wandb.Run":
    """Log the table of a sweep as a W&B run in the sweep's group.

    The run replaces the one of an earlier table.
    """
    name = re.sub(r"[^\w.-]", "-", "-".join([sweep, *tags]))
    place |= {"id": name, "name": sweep, "group": sweep, "job_type": "table"}
    with _start(directory, tags=[sweep, *tags], **place) as run:
        # W&B infers one type per column, and a column of text and gaps has two.
        types: dict[Any, Any] = dict.fromkeys(table.select_dtypes(exclude="number"), str)
        types |= dict.fromkeys(table.select_dtypes(include="Int64"), float)
        run.log({sweep: _wandb().Table(dataframe=table.astype(types))})
    return run


def where_logged(project: str, mode: Mode, directory: str | Path) -> str:
    """Return in one line where the W&B runs below a folder are; "" if there are none."""
    # The table of a sweep is logged in the sweep's folder, and its runs one level below.
    runs = Path(directory).glob("**/wandb/offline-run-*")
    if depths := sorted({len(run.relative_to(directory).parts) - 2 for run in runs}):
        place = os.path.relpath(directory)
        folders = " ".join(f"{place}/{'*/' * depth}wandb/offline-run-*" for depth in depths)
        return f"offline; `wandb sync {folders}` uploads the runs"
    return "" if chosen_mode(mode) == "disabled" else f"project {project}"


def chosen_mode(mode: Mode) -> Mode:
    """Return the mode; `auto` is `WANDB_MODE` if set, else online with a key."""
    if check_choice("logger.wandb.mode", mode, get_args(Mode)) != "auto":
        return mode
    if find_spec("wandb") is None:
        return _not_installed()
    variable = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
    return cast(Mode, check_choice("WANDB_MODE", variable, get_args(Mode)[1:]))


@cache  # warns once per process
def _not_installed() -> Mode:
    log.warning(
        "logger=wandb: not installed, no run is logged; pip install 'robust-diffusion[wandb]'"
    )
    return "disabled"


def _has_key() -> bool:
    """Return whether there is an API key of the W&B server in use."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    wandb = _wandb()
    url = os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url
    # Older versions store the key of W&B's own server under another name.
    former = ["https://api.wandb.ai"] * (url == wandb.Settings().base_url)
    return any(map(get_netrc_auth, [url, *former]))


def _wandb() -> Any:
    """Import W&B after setting variables that it reads once; offline runs send no error reports."""
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb
