"""Errors that a user can act on: each names the file or key, the value, and a remedy.

The command line prints them as one line and exits non-zero; see `robust_diffusion.system.boundary`.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes of a full disk, an exhausted quota, and a file above the size limit."""

UNWRITABLE = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
"""`FULL`, and the error codes of a read-only or protected folder."""

_NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
"""Words of torch's out-of-memory errors on the CPU, which have no class of their own."""


class RobustDiffusionError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(RobustDiffusionError, ValueError):
    """A configuration value outside its range, or a combination that makes no sense."""


class DataError(RobustDiffusionError, ValueError):
    """A data file that is missing, damaged, or holds something other than a graph."""


class TrainingError(RobustDiffusionError, RuntimeError):
    """Training cannot continue, for example because the loss is not finite."""


class AttackError(RobustDiffusionError, RuntimeError):
    """An attack that cannot be run as declared."""


class GradientError(AttackError):
    """A gradient that an attack needs is missing or not finite.

    Args:
        message: One line.
        variable: `features` or `edge weights`, in which the gradient is taken.
    """

    def __init__(self, message: str, variable: str = "") -> None:  # a copy fills in the latter
        super().__init__(message)
        self.variable = variable

    @classmethod
    def missing(cls, variable: str) -> "GradientError":
        """Return the error of a model that is not differentiable in a variable."""
        return cls(
            f"the model is not differentiable in the {variable}; attack a differentiable surrogate "
            "(threat=black_box) or choose an attack that needs no such gradient",
            variable,
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on the CPU or a GPU."""
    # By its name, since torch's class is not imported here.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error)))


@contextmanager
def needs_extra(extra: str, user: str) -> Iterator[None]:
    """Turn a failed import in the block into a `ConfigError` that names the extra to install.

    Args:
        extra: Extra of this package, such as `report`.
        user: Option or command that needs the module; the message begins with it.
    """
    try:
        yield
    except ImportError as error:
        remedy = f"pip install 'robust-diffusion[{extra}]'"
        raise ConfigError(f"{user}: needs {error.name}; {remedy}") from error


class EscapedError(BaseException):
    """Carrier of its cause past Hydra, which turns exceptions of callbacks into warnings."""
