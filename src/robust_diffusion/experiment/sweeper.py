"""The runs of a sweep: one product of options or several, thinned for a smoke run."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.errors import ConfigError

log = logging.getLogger(__name__)

_Run = dict[str, str]
"""Option -> override of one run, in the order in which Hydra receives them."""


def plan(
    *,
    params: Mapping[str, Any],
    grids: Sequence[Mapping[str, Any]],
    typed: Sequence[str],
    max_runs: int | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> list[list[str]]:
    """Return the runs of a sweep: all combinations of `params`, with all combinations of each grid.

    The first option in `params` changes slowest. Options typed on the command line replace these
    values as follows:

    - If grids differ in an option, a typed value runs in the grids that list it. For example, a
      solver without steps is not combined with a number of steps. A value that no grid lists runs
      in all of them.
    - If no grid has two typed options together, such as `model` and `flow`, each runs in the grids
      that have it.
    - A dataset that stands in for another one runs in the grids that list the other.

    Args:
        params: Values of each option in Hydra's grammar, such as `1,2,10` or `range(5)`.
        grids: Further options; each grid is a separate product.
        typed: Overrides of the command line; several values make separate runs.
        max_runs: Thin the sweep to about this number of runs: first to two seeds or one, and then
            by dropping runs, as long as every option still runs with each of its values.
        stand_ins: Dataset -> dataset that may stand in for it.

    Raises:
        HydraException: An override cannot be parsed.
    """
    asked = _values(typed)
    common = {key: asked.pop(key, values) for key, values in _parsed(params).items()}
    narrowed = _narrowed([_parsed(grid) for grid in grids], asked, stand_ins or {})
    runs = [
        shared | further
        for shared in _combinations(asked | common)
        for grid in narrowed
        for further in _combinations(grid)
    ]
    if max_runs is not None:
        runs = _thinned(runs, max_runs)
    return [list(run) for run in dict.fromkeys(tuple(run.values()) for run in runs)]


def covering(runs: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return a subset of runs that covers every override."""
    seen: set[str] = set()
    cover = []
    for run in runs:
        if not seen.issuperset(run):
            cover.append(list(run))
            seen.update(run)
    return cover


def as_sweeps(arguments: Sequence[str]) -> list[str]:
    """Rewrite keys of swept groups on a command line as sweeps of one value.

    Before a sweep, Hydra composes the defaults with all overrides that are not sweeps. A key of
    `model=gcn,gat` would then have to exist in the default model.
    """
    parsed = {}
    for argument in arguments:
        try:
            parsed[argument] = OverridesParser.create().parse_override(argument)
        except HydraException:  # a flag, or an error that Hydra will report
            continue
    swept = {override.key_or_group for override in parsed.values() if override.is_sweep_override()}
    fixed = {
        argument
        for argument, override in parsed.items()
        if not (override.is_sweep_override() or override.is_add() or override.is_delete())
        and "." in override.key_or_group
        and _group(override.key_or_group) in swept
    }
    one = re.compile("=(.*)", re.DOTALL)
    return [one.sub(r"=choice(\1)", arg, count=1) if arg in fixed else arg for arg in arguments]


def without_lacking_keys(
    runs: Sequence[Sequence[str]], compose: Callable[[list[str]], DictConfig]
) -> list[list[str]]:
    """Remove keys from runs whose option of the key's group does not have them.

    A key that no option has stays, and composing the run raises an error.
    """
    overrides = list(dict.fromkeys(override for run in runs for override in run))
    lacking: dict[str, set[str]] = {}
    for key in dict.fromkeys(
        key for o in overrides if "." in (key := _key(o)) and key[0].isalpha()
    ):
        options = [o for o in overrides if _key(o) == _group(key)]
        without = sorted(option for option in options if not _has(compose([option]), key))
        if 0 < len(without) < len(options):
            names = " or ".join(without)
            log.warning("%s: left out of runs with %s, which have no such key", key, names)
            lacking[key] = set(without)
    return [[o for o in run if lacking.get(_key(o), set()).isdisjoint(run)] for run in runs]


def _has(config: DictConfig, key: str) -> bool:
    part, _, name = key.rpartition(".")
    node = OmegaConf.select(config, part)
    return isinstance(node, DictConfig) and name in node.keys()  # noqa: SIM118 - ??? is there


def _group(key: str) -> str:
    part = key.partition(".")[0]
    return {"attacks": "attack", "surrogates": "surrogate"}.get(part, part)


def _key(override: str) -> str:
    return override.partition("=")[0]


def _parsed(options: Mapping[str, Any]) -> dict[str, list[str]]:
    return _values([f"{key}={values}" for key, values in options.items()])


def _values(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides of each option, one for each value."""
    hydra = GlobalHydra.instance()
    loader = hydra.config_loader() if hydra.is_initialized() else None  # resolves glob(*)
    parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
    return {override.get_key_element(): _each(override) for override in parsed}


def _each(override: Override) -> list[str]:
    if not override.is_sweep_override():
        assert override.input_line is not None
        return [override.input_line]
    if override.is_interval_sweep():
        remedy = "install hydra-optuna-sweeper and add hydra/sweeper=optuna to search it"
        raise ConfigError(f"{override.input_line}: expected values, got an interval; {remedy}")
    key = override.get_key_element()
    if not (values := [f"{key}={value}" for value in override.sweep_string_iterator()]):
        raise ConfigError(f"{override.input_line}: expected a value at least, got none")
    return values


def _narrowed(
    grids: Sequence[dict[str, list[str]]],
    asked: dict[str, list[str]],
    stand_ins: Mapping[str, str],
) -> list[dict[str, list[str]]]:
    """Narrow grids to the typed options; select those that have most, and remove used options.

    Options that the selected grids use are removed from `asked`.
    """
    known = [asked.keys() & grid.keys() for grid in grids]
    narrowed = [
        grid
        for grid, typed in zip(grids, known, strict=True)
        if not any(typed < more for more in known)
    ]
    for key in list(asked):
        having = [grid for grid in narrowed if key in grid]
        if not having:  # an option that runs in each grid
            continue
        values = asked.pop(key)
        names = {value: _names(value, stand_ins) for value in values}
        strange = {v for v in values if not any(names[v] & set(grid[key]) for grid in having)}
        kept_values = [
            [v for v in values if v in strange or names[v] & set(grid.get(key, ()))]
            for grid in narrowed
        ]
        narrowed = [
            grid | {key: some} if key in grid else grid
            for grid, some in zip(narrowed, kept_values, strict=True)
            if some or key not in grid
        ]
    return narrowed


def _names(override: str, stand_ins: Mapping[str, str]) -> set[str]:
    """Return the overrides by which a grid may list this one: itself, or what it stands in for."""
    instead = {f"dataset={other}": f"dataset={dataset}" for dataset, other in stand_ins.items()}
    return {override, instead.get(override, override)}


def _combinations(options: Mapping[str, Sequence[str]]) -> list[_Run]:
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


def _thinned(runs: list[_Run], max_runs: int) -> list[_Run]:
    seeds = list(dict.fromkeys(run.get("seed") for run in runs))
    for kept_seeds in (seeds[:2], seeds[:1]):
        runs = [run for run in runs if run.get("seed") in kept_seeds]
        if len(runs) <= max_runs:
            return runs
    # Drawn at random, so that values are combined with many values of other options, but with a
    # fixed seed.
    drawn = [list(run.values()) for run in Random(0).sample(runs, max_runs)]  # noqa: S311 # nosec B311
    selected = [*drawn, *covering([*drawn, *(list(run.values()) for run in runs)])]
    return [run for run in runs if list(run.values()) in selected]
