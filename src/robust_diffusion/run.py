"""Entry point: one cell trains one model and tests it on the clean and on each attacked graph.

python -m robust_diffusion.run -m flow=heat,mean_curvature,beltrami
"""

import errno
import gc
import logging
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from tempfile import mkstemp
from traceback import print_exception

from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from robust_diffusion import __version__, commands, paper
from robust_diffusion.commands.usage import usage
from robust_diffusion.config import CONFIG_DIR, find_published
from robust_diffusion.errors import ConfigError, RobustDiffusionError
from robust_diffusion.system.interrupts import Terminated, end_on_sigterm

log = logging.getLogger(__name__)

COMMANDS = commands.COMMANDS | paper.COMMANDS
"""First words that are no override, and their purposes."""

PLUGINS = {
    "hydra/launcher=submitit_local": "slurm",
    "hydra/launcher=submitit_slurm": "slurm",
}
"""Options of Hydra's plugins, and the extra that brings each."""

MODULES = {"matplotlib": "report", "sklearn": "report", "wandb": "wandb"}
"""Modules that are imported where they are needed, likewise."""

NO_NAME = re.compile(r"[-+\d.]+(e[-+]?\d+)?|true|false|null", re.IGNORECASE)
"""Text that Hydra reads as a number, a truth value or nothing, so no name of an option."""

ALONE = frozenset(
    ["-r", "--run", "-m", "--multirun", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion"]
)
"""Flags that Hydra takes one at a time; two of them end in a traceback."""

ELSEWHERE = "name another folder by paths.outputs"

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without room, of a user's share of it, or of a limit of file sizes."""

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a folder that must not be written to."""

NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
"""Words of torch's errors where memory does not suffice, which have no class of their own."""


def cell(cfg: DictConfig) -> float | None:
    """Run one cell and record it; in a sweep a failed cell is recorded and the others go on.

    Returns:
        Its accuracy on the clean validation nodes, in 0..1, which a sweeper that searches may
        maximise; none of a cell that failed, or that trains nothing.
    """
    # Imported late, so that a mistyped option is answered at once.
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from robust_diffusion.cells.experiment import record_failure, run_and_record

    try:
        accuracy: float | None = run_and_record(cfg).get("val_accuracy")
    except Exception as error:
        cause = expected_cause(error)
        message = describe(cause or error)
        multirun = HydraConfig.get().mode == RunMode.MULTIRUN
        # A sweep's exit status is what its records say, so there a record must not go missing.
        with nullcontext() if multirun else suppress(Exception):
            record_failure(cfg, message, type(cause or error).__name__)
        if cause is None:
            message = _defect(error, HydraConfig.get().runtime.output_dir)
        # The traceback of an expected error would say nothing that its message does not.
        if multirun:
            number, shown = HydraConfig.get().job.num, _wants_traceback()
            log.error("cell %s failed: %s", number, message, exc_info=shown)  # noqa: TRY400
        elif _wants_traceback():
            raise
        else:
            # Not raised, since Hydra would repeat every override above it.
            log.error("error: %s", message)  # noqa: TRY400
            sys.exit(1)
        return None
    finally:
        # Trainer, module and data hold each other, and what Python counts before it looks for such
        # rings is objects, not bytes: a sweep's cells would pile up, gigabytes each.
        gc.collect()
    return accuracy


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an expected error becomes one line and exit status 1."""
    given = list(map(find_published, sys.argv[1:] if arguments is None else arguments))
    sys.argv = [sys.argv[0], *(_as_override(argument) for argument in given)]
    traceback = _wants_traceback()
    # The console command finds a class in the current folder, as `python -m` does.
    if "" not in sys.path:
        sys.path.append("")
    # Makes Hydra hand every exception on to here instead of printing it its own way.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Set to nothing is as good as not set; as a folder it would be the current one.
    if os.environ.get("ROBUST_DIFFUSION_DATA") == "":
        del os.environ["ROBUST_DIFFUSION_DATA"]
    # conf/hydra/launcher/ray.yaml bears the name of the option of Ray's plugin, and replaces it.
    warnings.filterwarnings("ignore", r"(?s).*hydra/launcher/ray' is validated against ConfigStore")
    end_on_sigterm()
    try:
        _answer(given)
    except KeyboardInterrupt as stop:
        ended, status = (
            ("terminated", 143) if isinstance(stop, Terminated) else ("interrupted", 130)
        )
        sys.stderr.write(f"{ended}: finished cells are recorded, this one is not\n")
        sys.exit(status)  # as shells have it
    except BrokenPipeError:
        # A reader such as `head` has seen enough; nothing is left to be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        cause = expected_cause(error)
        if cause is None and isinstance(error, OSError) and error.filename:
            remedy = "" if given and given[0] in COMMANDS else f"; {ELSEWHERE}"
            cause = RobustDiffusionError(f"{error.filename}: {error.strerror or error}{remedy}")
        if traceback:
            raise
        sys.stderr.write(f"error: {describe(cause) if cause else _defect(error)}\n")
        sys.exit(1)


def _answer(given: Sequence[str]) -> None:
    if given and given[0] in COMMANDS:
        name = given[0].replace("-", "_")
        of_paper = given[0] in paper.COMMANDS
        path = f"{paper.__name__}.commands" if of_paper else f"{commands.__name__}.{name}"
        module = import_module(path)  # no earlier, since it takes seconds
        getattr(module, f"run_{name}_command")(given[1:])
    elif not {"-h", "--help"}.isdisjoint(given):
        sys.stdout.write(usage(COMMANDS))
    elif "--version" in given:
        sys.stdout.write(f"robust_diffusion {__version__}\n")
    else:
        _check_arguments(sys.argv[1:])
        import hydra  # late, as elsewhere here: most commands compose no configuration

        from robust_diffusion.cells.sweeper import as_sweeps

        if not {"-m", "--multirun"}.isdisjoint(given):
            sys.argv[1:] = as_sweeps(sys.argv[1:])
        decorate = hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="config")
        decorate(cell)()


def _check_arguments(arguments: Sequence[str]) -> None:
    """Refuse what Hydra would answer with a traceback, or by writing to the root folder."""
    flags = [argument for argument in arguments if argument.partition("=")[0] in ALONE]
    if len(flags) > 1:
        raise ConfigError(f"{' '.join(flags)}: do not go together; leave out all but one")
    for argument in arguments:
        key, equals, value = argument.lstrip("+~").partition("=")
        if not key or (key.startswith("@") and not equals):
            raise ConfigError(f"{argument}: names no key; write key=value")
        if equals and key.startswith("paths.") and value in ("", "null", "''", '""'):
            raise ConfigError(f"{argument}: names no folder; give one, or leave it out")
        if (key, value.lower()) == ("hydra.job.chdir", "true"):
            raise ConfigError(f"{argument}: results would be spread over folders; leave it out")
        if equals and not argument.startswith("~"):
            _check_option(argument, key, value)


def _check_option(argument: str, key: str, value: str) -> None:
    """Refuse what names no option of a config group; Hydra takes `model@model` for one, too."""
    group = key.partition("@")[0]
    folder = CONFIG_DIR / group
    if not (folder.is_dir() or re.fullmatch(r"hydra/\w+", group)) or not group:
        return
    options = {path.stem for path in folder.glob("*.yaml")}
    remedy = f"use one of {', '.join(sorted(options))}" if options else "name one of its options"
    if value.startswith("{") or value == "[]" or ".." in re.split(r"[][,/]", value):
        raise ConfigError(f"{argument}: names no {group}; {remedy}")
    unknown = [given for given in value.strip("[]").split(",") if NO_NAME.fullmatch(given)]
    if unknown and not options & set(unknown):
        raise ConfigError(f"{key}={value}: unknown; {remedy}")


def expected_cause(error: BaseException) -> BaseException | None:
    """The link of an error's chain that is the user's to mend; `None` if it is our defect."""
    from hydra.errors import HydraException

    chain = [error]
    while (inner := chain[-1].__cause__) is not None:
        chain.append(inner)
    for kind in (RobustDiffusionError, HydraException, OmegaConfBaseException):
        if found := next((link for link in chain if isinstance(link, kind)), None):
            return found
    return next((link for link in chain if _extra(link) or _is_of_the_machine(link)), None)


def _extra(error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError):
        return None
    return MODULES.get(str(error.name).partition(".")[0])


def _is_of_the_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (*FULL, *READ_ONLY, errno.ENOMEM)
    out_of_memory = isinstance(error, RuntimeError) and NO_MEMORY.search(str(error))
    return isinstance(error, MemoryError) or bool(out_of_memory)


def describe(error: BaseException) -> str:
    """The error in one line: which key, which value, and what would be right."""
    from hydra.errors import (
        ConfigCompositionException,
        HydraException,
        MissingConfigException,
        OverrideParseException,
    )

    lines = str(error).splitlines() or [""]
    match error:
        case RobustDiffusionError():
            return " ".join(str(error).split())
        case MissingConfigException(missing_cfg_file=str(path)):
            group, _, option = path.rpartition("/")
            if extra := PLUGINS.get(f"{group}={option}"):
                remedy = f"pip install 'robust-diffusion[{extra}]'"
                return f"{group}={option}: not installed; {remedy}"
            options = error.options or sorted(f.stem for f in (CONFIG_DIR / group).glob("*.yaml"))
            return f"{group}={option}: unknown; use one of {', '.join(options)}"
        case OverrideParseException(override=str(override)):
            key, _, value = override.partition("=")
            said = f"{override}: cannot be read; write key=value"
            if value:
                return f"{said}, and quote a value of other signs: {key}='\"...\"'"
            return f"{said}, or one of {', '.join(COMMANDS)}" if key.isidentifier() else said
        case ConfigCompositionException(
            __cause__=ConfigKeyError() | ConfigAttributeError() as cause
        ):
            # Hydra's last line ends with the override: "use +key=value".
            override = lines[-1].partition(" use +")[2]
            known = sorted(k for k in map(str, cause.parent_node or ()) if not k.startswith("_"))
            remedy = f"; use one of {', '.join(known)}" if known else ""
            return f"{override}: unknown key{remedy}"
        case HydraException(__cause__=BaseException() as cause):
            return f"{' '.join(lines)}: {describe(cause)}"
        case OmegaConfBaseException(full_key=str(key)) if key:
            return f"{key}: {lines[0]}"
        case HydraException() | OmegaConfBaseException():
            return " ".join(str(error).split())
    return _unforeseen(error)


def _defect(error: BaseException, folder: str | None = None) -> str:
    """An unforeseen error in one line; its traceback is kept in a file."""
    number, path = mkstemp(".txt", "traceback-", folder, text=True)
    with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123 - open already
        print_exception(error, file=file)
    return (
        f"{_unforeseen(error)}; a defect of robust_diffusion, or of code of yours that it calls; "
        f"traceback: {path}"
    )


def _unforeseen(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and (extra := _extra(error)):
        return f"{error.name}: not installed; pip install 'robust-diffusion[{extra}]'"
    if not isinstance(error, OSError) and _is_of_the_machine(error):
        said = " ".join(str(error).split())[:200]
        return f"out of memory{f' ({said})' if said else ''}; take a smaller graph or model"
    if isinstance(error, OSError) and error.errno in READ_ONLY:
        return f"{error.filename or 'results'}: {error.strerror}; {ELSEWHERE}"
    if isinstance(error, OSError) and error.errno in FULL:
        return f"{error.filename or 'results'}: {error.strerror}; free space, or {ELSEWHERE}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _as_override(argument: str) -> str:
    # The config groups are `attack` and `surrogate`; a list of several reads better in the plural.
    if argument == "--force":
        return "force=true"
    for group in ("attack", "surrogate"):
        if argument.startswith(f"{group}s="):
            return argument.replace("s=", "=", 1)
    return argument


def _wants_traceback() -> bool:
    return os.environ.get("ROBUST_DIFFUSION_TRACEBACK") == "1"


if __name__ == "__main__":
    main()
