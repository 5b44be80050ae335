"""Keys in a sweep that some of its options lack, such as `threat.fit.patience` of a white box."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from robust_diffusion.sweeper import covering

log = logging.getLogger(__name__)

GROUP_OF = {"attacks": "attack", "surrogates": "surrogate"}
"""Keys whose config group has another name."""

Choices = tuple[str, ...]
"""Overrides that choose options of a cell; they alone decide which keys it has."""


def as_sweeps(arguments: Sequence[str]) -> list[str]:
    """A command line on which the keys of swept groups are sweeps of one value.

    Before a sweep, Hydra composes the defaults with everything that is no sweep. A key of
    `model=gcn,gat` would have to be one of the default model's.
    """
    parsed = {}
    for argument in arguments:
        try:
            parsed[argument] = OverridesParser.create().parse_override(argument)
        except HydraException:  # a flag, or what Hydra will tell of
            continue
    swept = {of.key_or_group for of in parsed.values() if of.is_sweep_override()}
    return [
        re.sub(r"=(.*)", r"=choice(\1)", argument, count=1, flags=re.DOTALL)
        if (of := parsed.get(argument))
        and not (of.is_sweep_override() or of.is_add() or of.is_delete())
        and "." in of.key_or_group
        and _group(of.key_or_group) in swept
        else argument
        for argument in arguments
    ]


def without_lacking_keys(
    cells: Sequence[Sequence[str]], compose: Callable[[Sequence[str]], object]
) -> list[list[str]]:
    """The cells, each less the keys that its options lack.

    Args:
        cells: Overrides of each.
        compose: Composes a cell, or raises what is wrong with it.

    Raises:
        HydraException: Something else is wrong, or no option of the sweep has a key.
    """
    # One cell of each value is enough to tell, and all of them would take minutes.
    if not any(_lacking(cell, compose) for cell in covering(cells)):
        return [list(cell) for cell in cells]
    first = {_choices(cell): cell for cell in reversed(cells)}
    lacking = {choices: _lacking(cell, compose) for choices, cell in first.items()}
    for key in dict.fromkeys(key for keys in lacking.values() for key in keys):
        if all(key in keys for keys in lacking.values()):
            compose([o for o in cells[0] if o in _choices(cells[0]) or _key(o) == key])
        log.warning("%s: left out of cells with %s, which have no such key", key, _of(key, lacking))
    return [[o for o in cell if _key(o) not in lacking[_choices(cell)]] for cell in cells]


def _lacking(cell: Sequence[str], compose: Callable[[Sequence[str]], object]) -> list[str]:
    """Keys of the cell that its options lack."""
    found: list[str] = []
    while True:
        try:
            compose([override for override in cell if _key(override) not in found])
        except ConfigCompositionException as error:
            # Hydra's last line ends with the override: "use +key=value".
            key = _key(str(error).splitlines()[-1].partition(" use +")[2])
            lacks = isinstance(error.__cause__, ConfigKeyError | ConfigAttributeError)
            if not lacks or "." not in key or key in found:
                raise
            found.append(key)
        else:
            return found


def _of(key: str, lacking: Mapping[Choices, Sequence[str]]) -> str:
    """The choices of the key's own group without which no cell lacks it."""
    own = {o for of in lacking for o in of if _key(o) == _group(key)}
    without = [o for o in own if all(key in keys for of, keys in lacking.items() if o in of)]
    return " or ".join(sorted(without)) or "other options"


def _choices(cell: Sequence[str]) -> Choices:
    return tuple(o for o in cell if "." not in _key(o) and _key(o) != "seed")


def _group(key: str) -> str:
    part = key.partition(".")[0]
    return GROUP_OF.get(part, part)


def _key(override: str) -> str:
    return override.partition("=")[0]
