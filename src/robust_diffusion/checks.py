"""Range checks of configuration values, with one wording for all of them."""

import math
from collections.abc import Iterable

from robust_diffusion.errors import ConfigError


def check_whole(key: str, value: object, *, at_least: int) -> int:
    """Return `value` if it is a whole number in range.

    Args:
        key: The configuration key that the message names.
        value: The value to check.
        at_least: Smallest value allowed.

    Raises:
        ConfigError: It is not a whole number or too small.
    """
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
    """Return `value` as a float if it is a finite number in range.

    Args:
        key: The configuration key that the message names.
        value: The value to check.
        at_least: Smallest value allowed.
        above: Bound that the value must exceed.
        at_most: Largest value allowed.
        below: Bound that the value must stay under.

    Raises:
        ConfigError: It is not a finite number or out of range.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        number = float(value)
        if at_least <= number <= at_most and above < number < below:
            return number
    bounds = [
        f"{words} {bound:g}"
        for words, bound in (
            ("at least", at_least),
            ("above", above),
            ("at most", at_most),
            ("below", below),
        )
        if math.isfinite(bound)
    ]
    raise ConfigError(f"{key}={value}: must be a finite number {' and '.join(bounds)}".rstrip())


def check_flag(key: str, value: object) -> bool:
    """Return `value` if it is a truth value.

    Args:
        key: The configuration key that the message names.
        value: The value to check.

    Raises:
        ConfigError: It is another value, such as the word `no`, which Python takes for true.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{key}={value}: must be true or false")
    return value


def check_choice(key: str, value: str, options: Iterable[str]) -> str:
    """Return `value` if it is one of the options.

    Args:
        key: The configuration key that the message names.
        value: The value to check.
        options: What is allowed.

    Raises:
        ConfigError: It is not among them.
    """
    known = sorted(options)
    if value not in known:
        raise ConfigError(f"{key}={value}: unknown; use one of {', '.join(known)}")
    return value
