"""Entry point: one cell trains one model and tests it on the clean and on each attacked graph.

python -m robust_diffusion.run -m flow=heat,mean_curvature,beltrami
"""

import logging
import os
import sys
from collections.abc import Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import RobustDiffusionError

log = logging.getLogger(__name__)

INTERRUPTED = 130
"""Exit status of a program that Ctrl-C ended, as shells have it."""


@hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="config")
def cell(cfg: DictConfig) -> None:
    """Run one cell and record it; in a sweep a failed cell is recorded and the others go on."""
    # Imported late, so that a mistyped option is answered at once.
    from robust_diffusion.experiment import record_failure, run_and_record

    try:
        run_and_record(cfg)
    except Exception as error:
        cause = expected_cause(error)
        if cause is None:
            raise
        record_failure(cfg, describe(cause))
        if HydraConfig.get().mode != RunMode.MULTIRUN or _wants_traceback():
            raise
        # One line: the traceback would say nothing that the message does not.
        log.error("cell %s failed: %s", HydraConfig.get().job.num, describe(cause))  # noqa: TRY400


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an expected error becomes one line and exit status 1."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    sys.argv = [sys.argv[0], *(_plural_attack(argument) for argument in given)]
    traceback = _wants_traceback()
    # Makes Hydra hand every exception on to here instead of printing it its own way.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        cell()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: finished cells are recorded, this one is not\n")
        sys.exit(INTERRUPTED)
    except Exception as error:
        cause = expected_cause(error)
        if cause is None or traceback:
            raise
        sys.stderr.write(f"error: {describe(cause)}\n")
        sys.exit(1)


def expected_cause(error: BaseException) -> BaseException | None:
    """The innermost error that is the user's to mend, or `None` if it is a defect of ours."""
    chain = [error]
    while (inner := chain[-1].__cause__) is not None:
        chain.append(inner)
    for kind in (RobustDiffusionError, OmegaConfBaseException, HydraException):
        for link in chain:
            if isinstance(link, kind):
                return link
    return None


def describe(error: BaseException) -> str:
    """The error's message in one line, without the list of folders that Hydra appends."""
    text = str(error).split("Config search path")[0]
    return " ".join(text.split())


def _plural_attack(argument: str) -> str:
    # The config group is `attack`; a list of several reads better as `attacks=[speit,tdgia]`.
    plural = "attacks="
    return f"attack={argument.removeprefix(plural)}" if argument.startswith(plural) else argument


def _wants_traceback() -> bool:
    return os.environ.get("ROBUST_DIFFUSION_TRACEBACK") == "1"


if __name__ == "__main__":
    main()
