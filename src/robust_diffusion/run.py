"""Entry point: one run trains one model and tests it on the clean and on each attacked graph.

python -m robust_diffusion.run -m flow=heat,mean_curvature,beltrami
"""

import gc
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib import import_module

from omegaconf import DictConfig

from robust_diffusion import __version__, commands, paper
from robust_diffusion.commands.usage import asks_for_help, usage
from robust_diffusion.config import CONFIG_DIR, find_published
from robust_diffusion.system.boundary import (
    boundary,
    describe,
    expected_cause,
    line_of,
    wants_traceback,
)
from robust_diffusion.system.interrupts import end_on_sigterm

log = logging.getLogger(__name__)

ALL_COMMANDS = commands.COMMANDS | paper.PAPER_COMMANDS
"""Name of each command -> its purpose; any other first word is an override."""


def one_run(cfg: DictConfig) -> float | None:
    """Execute one run and record it; in a sweep, a failed run does not stop the others.

    Returns:
        The accuracy on the clean validation nodes, in 0..1, which Optuna's sweeper may maximise;
        `None` if the run failed or trains nothing.
    """
    # Imported late, so that a mistyped option fails at once.
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from robust_diffusion.experiment.run import record_failure, run_and_record

    try:
        accuracy = run_and_record(cfg).val_accuracy
    except Exception as error:
        cause = expected_cause(error) or error
        multirun = HydraConfig.get().mode == RunMode.MULTIRUN
        message = line_of(error, ALL_COMMANDS, HydraConfig.get().runtime.output_dir)
        # An expected error needs no traceback: its message says it all.
        if multirun:
            number, shown = HydraConfig.get().job.num, wants_traceback()
            if shown:
                log.error("run %s", number, exc_info=True)
            end = {"end": f"failed: {message}"}
            log.error("run %s failed: %s", number, message, extra=end)  # noqa: TRY400
        elif not wants_traceback():
            log.error("error: %s", message)  # noqa: TRY400
        # After the message, since a full disk takes no record. A sweep takes its exit status from
        # its records, so there a lost record must raise.
        with nullcontext() if multirun else suppress(Exception):
            record_failure(cfg, describe(cause, ALL_COMMANDS), type(cause).__name__)
        if multirun:
            return None
        if wants_traceback():
            raise
        # Not raised, since Hydra would print every override above the message.
        sys.exit(1)
    finally:
        # Trainer, module and data refer to each other. Python looks for such cycles after a number
        # of objects, not bytes, so the runs of a sweep would pile up, at gigabytes each.
        gc.collect()
    return accuracy


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an expected error becomes one line and exit status 1."""
    words = list(map(find_published, sys.argv[1:] if arguments is None else arguments))
    sys.argv = [sys.argv[0], *(_as_override(argument) for argument in words)]
    # The console command finds a class in the current folder, as `python -m` does.
    if "" not in sys.path:
        sys.path.append("")
    # With this, Hydra raises every exception instead of printing it.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # An empty value counts as unset; as a path it would be the current folder.
    if os.environ.get("ROBUST_DIFFUSION_DATA") == "":
        del os.environ["ROBUST_DIFFUSION_DATA"]
    # conf/hydra/launcher/ray.yaml replaces the option of the same name of Ray's plugin.
    warnings.filterwarnings("ignore", r"(?s).*hydra/launcher/ray' is validated against ConfigStore")
    end_on_sigterm()
    with boundary(() if words and words[0] in ALL_COMMANDS else ALL_COMMANDS):
        _answer(words)


def _answer(words: Sequence[str]) -> None:
    if words and words[0] in ALL_COMMANDS:
        name = words[0].replace("-", "_")
        of_paper = words[0] in paper.PAPER_COMMANDS
        path = f"{paper.__name__}.commands" if of_paper else f"{commands.__name__}.{name}"
        module = import_module(path)  # late, since it takes seconds
        getattr(module, f"run_{name}_command")(words[1:])
    elif asks_for_help(words):
        sys.stdout.write(usage(ALL_COMMANDS, words))
    elif "--version" in words:
        sys.stdout.write(f"robust_diffusion {__version__}\n")
    else:
        from robust_diffusion.experiment.arguments import check_arguments

        check_arguments(sys.argv[1:], ALL_COMMANDS)
        import hydra  # late, since most commands compose no configuration

        from robust_diffusion.experiment.sweeper import as_sweeps

        # Options go first: Hydra's parser rejects `key=value --option key=value`.
        sys.argv[1:] = sorted(sys.argv[1:], key=_is_override)
        if not {"-m", "--multirun"}.isdisjoint(words):
            sys.argv[1:] = as_sweeps(sys.argv[1:])
        decorate = hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="config")
        decorate(one_run)()


def _as_override(argument: str) -> str:
    # The config groups are `attack` and `surrogate`, but a list reads better in the plural.
    if argument == "--force":
        return "force=true"
    for group in ("attack", "surrogate"):
        if argument.startswith(f"{group}s="):
            return argument.replace("s=", "=", 1)
    return argument


def _is_override(word: str) -> bool:
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


if __name__ == "__main__":
    main()
