"""Checks of the words of a command line, before Hydra composes a configuration."""

import re
from collections.abc import Collection, Sequence

from robust_diffusion.config import (
    CONFIG_DIR,
    LISTED,
    choices_named,
    known_keys,
    nearest,
    option_names,
    unknown_key,
    unknown_option,
)
from robust_diffusion.errors import ConfigError

NO_NAME = re.compile(r"[-+\d.]+(e[-+]?\d+)?|true|false|null", re.IGNORECASE)
"""Text that Hydra reads as a number, a boolean or null, and so cannot name an option."""

ALONE = frozenset(
    ["-r", "--run", "-m", "--multirun", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion"]
)
"""Mutually exclusive flags of Hydra; two of them would end in a traceback."""

WITH_VALUE = frozenset(
    [
        *("-c", "--cfg", "-i", "--info", "-p", "--package", "-cp", "--config-path"),
        *("-cn", "--config-name", "-cd", "--config-dir", "--experimental-rerun"),
    ]
)
"""Flags of Hydra that take the next word as their value."""

HYDRA_FLAGS = (
    ALONE | WITH_VALUE | {"-h", "--help", "--hydra-help", "--version", "--resolve", "--force"}
)

ADDS_OPTIONS = ("-cd", "--config-dir", "-cp", "--config-path", "-cn", "--config-name")
"""Flags that bring options and keys which this package does not know."""

FIXED = ("budget", "flow", "model", "solver", "training")
"""Parts whose keys are all in `conf/`; a custom class gets others by `+key=value`."""


def check_arguments(
    arguments: Sequence[str], commands: Collection[str] = (), *, foreign: bool = False
) -> None:
    """Reject mistyped words, and words for which Hydra would print a traceback.

    Args:
        arguments: Words of the command line.
        commands: Commands that the first word may mean; none within a command.
        foreign: Whether another folder adds options and keys.

    Raises:
        ConfigError: Names the word, and what was probably meant.
    """
    flags = [argument for argument in arguments if argument.partition("=")[0] in ALONE]
    if len(flags) > 1:
        raise ConfigError(f"{' '.join(flags)}: do not go together; leave out all but one")
    text = "\n".join(arguments)
    foreign |= "hydra.searchpath" in text or any(a.startswith(ADDS_OPTIONS) for a in arguments)
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if argument.startswith("-"):
            _check_flag(argument)
        elif before not in WITH_VALUE:
            _check_word(argument, commands)
            _check_override(argument, foreign=foreign)


def _check_flag(argument: str) -> None:
    flag, equals, value = argument.partition("=")
    name = flag.lstrip("-")
    if argument.startswith("--") and name.partition(".")[0] in known_keys():
        remedy = f"write {name}={value or '...'}"
        raise ConfigError(f"{argument}: expected an option without dashes; {remedy}")
    shortened = any(known.startswith(flag) for known in HYDRA_FLAGS)  # as argparse allows
    if argument.startswith("--") and not shortened:
        meant = nearest(flag, HYDRA_FLAGS)
        remedy = f"write {meant}{equals}{value}" if meant else "--help lists what there is"
        raise ConfigError(f"{argument}: unknown flag; {remedy}")


def _check_word(argument: str, commands: Collection[str]) -> None:
    """Reject a word that is no override, and suggest the command, key or option it may mean."""
    if "=" in argument or not re.fullmatch(r"[\w.-]+", argument):
        return
    choices = choices_named(argument)
    if argument in known_keys():
        names = ", ".join(option_names(argument))
        meant = f"write {argument}=..." + f", with one of {names}" * bool(names)
    elif choices:
        meant = f"write {' or '.join(choices)}"
    elif command := nearest(argument, commands):
        meant = f"write {command}"
    else:
        meant = "write key=value" + f", or one of {', '.join(commands)}" * bool(commands)
    raise ConfigError(f"{argument}: expected key=value{' or a command' * bool(commands)}; {meant}")


def _check_override(argument: str, *, foreign: bool) -> None:
    key, equals, value = argument.lstrip("+~").partition("=")
    if not key or (key.startswith("@") and not equals):
        raise ConfigError(f"{argument}: names no key; write key=value, without spaces")
    if equals and key.startswith("paths.") and value in ("", "null", "''", '""'):
        raise ConfigError(f"{argument}: names no folder; give one, or leave it out")
    if (key, value.lower()) == ("hydra.job.chdir", "true"):
        raise ConfigError(f"{argument}: results would be spread over folders; leave it out")
    if not equals or argument.startswith("~"):
        return
    _check_option(argument, key, value, foreign=foreign)
    part, known = key.partition(".")[0], known_keys()
    if argument.startswith("+") or foreign or part == "table" or re.search("[/@]", key):
        return
    if key.rpartition(".")[2].startswith("_"):  # Hydra's own, such as _target_
        return
    is_fixed = key.count(".") == 0 or (key.count(".") == 1 and part in FIXED)
    if part not in known or (is_fixed and key not in known):
        raise ConfigError(unknown_key(argument))


def _check_option(argument: str, key: str, value: str, *, foreign: bool) -> None:
    """Reject a name that is not an option of a config group, which may also be `model@model`."""
    group = key.partition("@")[0]
    if not ((CONFIG_DIR / group).is_dir() or re.fullmatch(r"hydra/\w+", group)) or not group:
        return
    options = option_names(group)
    remedy = f"use one of {', '.join(options)}" if options else "name one of its options"
    if value.startswith("{") or value == "[]" or ".." in re.split(r"[][,/]", value):
        raise ConfigError(f"{argument}: names no {group}; {remedy}")
    names = value.strip("[]").split(",")
    if value.startswith("[") and options and group not in LISTED:
        several = f"add -m, and write {key}={','.join(names)}" if len(names) > 1 else "drop the []"
        raise ConfigError(f"{argument}: expected one option of {group}; {several}")
    known = {*options} if options and not foreign else None
    for name in names:
        plain = NO_NAME.fullmatch(name) or (known and re.fullmatch(r"[\w-]+", name))
        if plain and name not in options and "/" not in group:
            raise ConfigError(unknown_option(group, name, options))
