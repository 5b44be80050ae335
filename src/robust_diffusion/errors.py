"""Errors a user can act on: each names the file or key, the value, and what would be right.

The command line prints them as one line and exits non-zero; see `robust_diffusion.system.boundary`.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without room, of a user's share of it, or of a limit of file sizes."""

UNWRITABLE = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
"""The same, and errors of a folder that must not be written to."""


class RobustDiffusionError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(RobustDiffusionError, ValueError):
    """A configuration value outside its range, or a combination that makes no sense."""


class DataError(RobustDiffusionError, ValueError):
    """A data file that is missing, damaged, or holds something other than a graph."""


class TrainingError(RobustDiffusionError, RuntimeError):
    """Training cannot go on, for example because the loss is not finite."""


class AttackError(RobustDiffusionError, RuntimeError):
    """An attack that cannot be run as declared."""


@contextmanager
def needs_extra(extra: str, user: str) -> Iterator[None]:
    """Name the extra that brings a module if its import in the block fails.

    Args:
        extra: Of this package, such as `report`.
        user: What needs the module, as the message begins.
    """
    try:
        yield
    except ImportError as error:
        remedy = f"pip install 'robust-diffusion[{extra}]'"
        raise ConfigError(f"{user}: needs {error.name}; {remedy}") from error


class EscapedError(BaseException):
    """Carries its cause past Hydra, which makes warnings of the exceptions of callbacks."""
