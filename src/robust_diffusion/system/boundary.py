"""Outermost error handling: exceptions end as one line, even if streams are closed or full."""

import errno
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from tempfile import mkstemp
from traceback import print_exception
from typing import Any, TextIO

from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError

from robust_diffusion.config import LISTED, known_keys, nearest, option_names, unknown_option
from robust_diffusion.errors import (
    FULL,
    UNWRITABLE,
    EscapedError,
    RobustDiffusionError,
    is_out_of_memory,
)
from robust_diffusion.system.interrupts import Terminated, ignore_sigterm

PLUGINS = {
    "hydra/launcher=submitit_local": "slurm",
    "hydra/launcher=submitit_slurm": "slurm",
}
"""Options of Hydra's plugins, and the extra that brings each."""

MODULES = {"matplotlib": "report", "sklearn": "report", "wandb": "wandb"}
"""Modules that are imported where they are needed, and the extra that brings each."""

OUTPUT = "standard output"

SEVERAL = re.compile("(Ambiguous value for argument|Sweep parameters) '(.*)'")
"""Hydra's words for a sweep without `-m`; the second group is the override."""


def wants_traceback() -> bool:
    """Return whether the user asked for tracebacks instead of lines."""
    return os.environ.get("ROBUST_DIFFUSION_TRACEBACK") == "1"


@contextmanager
def boundary(words: Collection[str] = ()) -> Iterator[None]:
    """End the program with one line on standard error and an exit status if the block raises.

    Args:
        words: As in `describe`.
    """
    try:
        with _standard_streams():
            yield
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, Terminated)
        if terminated:
            ignore_sigterm()
        ended, status = ("terminated", 143) if terminated else ("interrupted", 130)
        _exit(
            f"{ended}: finished runs are recorded; the same command continues", status
        )  # as shells have it
    except (Exception, EscapedError) as error:
        if wants_traceback():
            raise
        cause = error.__cause__ if isinstance(error, EscapedError) else error
        if isinstance(cause, BrokenPipeError):  # a reader such as `head` has seen enough
            sys.exit(1)
        _exit(f"error: {line_of(cause or error, words)}", 1)


def _exit(line: str, status: int) -> None:
    with suppress(OSError):  # standard error may be full
        sys.stderr.write(f"{line}\n")
    sys.exit(status)


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Make standard output name itself in errors and write any letter; reopen closed streams.

    Closed streams get their numbers back, which the next file to be opened would get otherwise.
    """
    # Opened for reading, so that writing to a closed standard output fails.
    output = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(output, TextIOWrapper):
        output.reconfigure(errors="backslashreplace")
    sys.stdout = _Output(output)
    try:
        yield
        sys.stdout.flush()  # at exit, Python would make a traceback of an error
    finally:
        sys.stdout = output


class _Output:
    """Standard output whose errors name it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._named(self._stream.write, text)  # type: ignore[no-any-return]

    def writelines(self, lines: Iterable[str]) -> None:
        self._named(self._stream.writelines, lines)

    def flush(self) -> None:
        self._named(self._stream.flush)

    def _named(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except OSError as error:
            # A buffer that was not written would fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            error.filename = OUTPUT
            raise


def line_of(error: BaseException, words: Collection[str] = (), folder: str | None = None) -> str:
    """Return an error in one line; a file in `folder` keeps the traceback of an unforeseen one."""
    if (cause := expected_cause(error)) is not None:
        return describe(cause, words)
    number, path = mkstemp(".txt", "traceback-", folder, text=True)
    with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123 - open already
        print_exception(error, file=file)
    return (
        f"{describe(error)}; internal error in robust_diffusion or in the user code it called; "
        f"traceback: {path}"
    )


def expected_cause(error: BaseException) -> BaseException | None:
    """Return the error in the chain that the user can fix; `None` if it is a bug of ours."""
    chain = [error]
    while (inner := chain[-1].__cause__) is not None:
        chain.append(inner)
    if ours := next((link for link in chain if isinstance(link, RobustDiffusionError)), None):
        return ours
    from hydra.errors import HydraException  # late, since it takes as long as everything else

    for kind in (HydraException, OmegaConfBaseException, MarkedYAMLError):
        if cause := next((link for link in chain if isinstance(link, kind)), None):
            return cause
    return next((link for link in chain if _extra(link) or _is_of_the_machine(link)), None)


def _extra(error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError):
        return None
    return MODULES.get(str(error.name).partition(".")[0])


def _is_of_the_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (*UNWRITABLE, errno.ENOMEM) or bool(error.filename)
    return is_out_of_memory(error)


def describe(error: BaseException, words: Collection[str] = ()) -> str:
    """Return the error in one line: key or file, value, and remedy.

    Args:
        error: Any exception.
        words: Words that the command line takes instead of overrides; none within a command.
    """
    if isinstance(error, RobustDiffusionError):
        return " ".join(str(error).split())
    from hydra.errors import (
        ConfigCompositionException,
        HydraException,
        MissingConfigException,
        OverrideParseException,
    )

    lines = str(error).splitlines() or [""]
    match error:
        case MissingConfigException(missing_cfg_file=str(path)):
            group, _, option = path.rpartition("/")
            if extra := PLUGINS.get(f"{group}={option}"):
                remedy = f"pip install 'robust-diffusion[{extra}]'"
                return f"{group}={option}: not installed; {remedy}"
            return unknown_option(group, option, error.options or option_names(group))
        case OverrideParseException(override=str(override)):
            key, _, value = override.partition("=")
            text = f"{override}: cannot be read; write key=value"
            quoted = f", and quote a value of other signs: {key}='\"...\"'"
            return text + quoted * bool(value)
        case ConfigCompositionException(
            __cause__=ConfigKeyError() | ConfigAttributeError() as cause
        ):
            # Hydra's last line ends with the override: "use +key=value".
            override = lines[-1].partition(" use +")[2]
            path, _, value = override.partition("=")
            known = sorted(k for k in map(str, cause.parent_node or ()) if not k.startswith("_"))
            part, _, key = path.rpartition(".")
            if part and known:
                key = f"{part}.{close}" if (close := nearest(key, known)) else ""
            else:
                key = nearest(path, known_keys()) or ""
            meant = f"; write {key}={value}" if key else ""
            remedy = meant or (f"; use one of {', '.join(known)}" if known else "")
            takes_more = "_target_" in (cause.parent_node or ())
            remedy += f", or +{override} if its class takes that" * takes_more
            return f"{override}: unknown key{remedy}"
        case HydraException(__cause__=BaseException() as cause):
            lacks = isinstance(cause, TypeError) and "missing" in str(cause)
            remedy = "; a class that takes widths needs _partial_: true in its option" * lacks
            return f"{' '.join(lines)}: {describe(cause, words)}{remedy}"
        case OmegaConfBaseException(full_key=str(key)) if key:
            return f"{key}: {lines[0]}"
        case HydraException() | OmegaConfBaseException():
            return _several(lines[0], words) or " ".join(str(error).split())
    return _unforeseen(error, runs=bool(words))


def _several(line: str, words: Collection[str]) -> str | None:
    """Return the line for a sweep without `-m`, an option that a command (no `words`) lacks."""
    if not (match := SEVERAL.match(line)):
        return None
    key, _, value = match[2].partition("=")
    takes_list = key in LISTED or isinstance(known_keys().get(key), list)
    remedies = ["add -m to run each"] * bool(words)
    remedies += [f"write {key}=[{value}] for a list"] * takes_list
    return f"{match[2]}: expected one value; {', or '.join(remedies) or 'give one'}"


def _unforeseen(error: BaseException, *, runs: bool) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and (extra := _extra(error)):
        return f"{error.name}: not installed; pip install 'robust-diffusion[{extra}]'"
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
        return f"{mark.name}: line {mark.line + 1}: {error.problem}; correct the YAML"
    if is_out_of_memory(error):
        return f"out of memory{f' ({text[:200]})' if text else ''}; take a smaller graph or model"
    if isinstance(error, OSError) and _is_of_the_machine(error):
        place = str(error.filename or "results")
        remedy = "name another folder by paths.outputs" if runs else "name another place"
        if place == OUTPUT:
            remedy = "redirect it elsewhere"
        full = "free space, or " if error.errno in FULL else ""
        return f"{place}: {error.strerror or text}; {full}{remedy}"
    return f"{type(error).__name__}: {text}"
