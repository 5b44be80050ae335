"""Range checks of configuration values, with one wording for all of them."""

import math
import re
from collections.abc import Iterable

from robust_diffusion.errors import ConfigError

NAME = re.compile(r"\w[\w.+ -]{0,99}")
"""Text that names a thing, in whatever alphabet."""


def check_whole(key: str, value: object, *, at_least: int) -> int:
    """The value, if it is a whole number of at least that; else a `ConfigError` names the key."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"{key}={value}: must be a whole number of at least {at_least}")
    return value


def check_number(
    key: str,
    value: object,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> float:
    """The value as a float, if it is a finite number in range; else a `ConfigError`."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        number = float(value)
        if at_least <= number <= at_most and above < number < below:
            return number
    named = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    bounds = [f"{words} {bound:g}" for words, bound in named.items() if math.isfinite(bound)]
    raise ConfigError(f"{key}={value}: must be a finite number {' and '.join(bounds)}".rstrip())


def check_flag(key: str, value: object) -> bool:
    """The value, if it is a truth value; else a `ConfigError`, as of `no`, true to Python."""
    if not isinstance(value, bool):
        raise ConfigError(f"{key}={value}: must be true or false")
    return value


def check_name(key: str, value: object) -> str:
    """The value, if it is a name, that can be part of a file's name and no path; else an error.

    Raises:
        ConfigError: It is neither letters, digits, `_`, `-`, `+`, `.` nor spaces within, begins
            with a dot, a sign or a space, or is longer than 100 characters.
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ConfigError(
            f"{key}={value}: is no name; begin with a letter or a digit, and use letters, digits, "
            "_ - + . and spaces, 100 at most"
        )
    return value


def check_choice(key: str, value: str, options: Iterable[str]) -> str:
    """The value, if it is one of the options; else a `ConfigError` that lists them."""
    known = sorted(options)
    if value not in known:
        raise ConfigError(f"{key}={value}: unknown; use one of {', '.join(known)}")
    return value
